package view

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
)

// Snapshot writes all that stands of a stream: its owned rows, and its shared
// rows and tombstones that no other has replaced. It needs little memory,
// whatever the size. As long as it goes on, the file's log cannot be cleared:
// give w a deadline. CodeNotFound: we do not have the stream.
func (v *View) Snapshot(ctx context.Context, s Stream, w io.Writer) error {
	err := v.copyOut(ctx, w, func(c *sqlite.Conn, w io.Writer) error { return v.writeStream(c, s, w) })
	if err != nil {
		return fmt.Errorf("snapshot of %s: %w", s.Site, err)
	}
	return nil
}

// SharedSnapshot writes all shared rows and tombstones, of all streams.
func (v *View) SharedSnapshot(ctx context.Context, w io.Writer) error {
	err := v.copyOut(ctx, w, v.writeShared)
	if err != nil {
		return fmt.Errorf("snapshot of shared rows: %w", err)
	}
	return nil
}

// copyOut writes from one state of the file. In memory, where reading keeps the
// writer out, a slow reader is waited for afterwards.
func (v *View) copyOut(ctx context.Context, w io.Writer, write func(*sqlite.Conn, io.Writer) error) error {
	if v.config.Path != "" {
		return v.read(ctx, func(c *sqlite.Conn) error { return write(c, w) })
	}
	var b bytes.Buffer
	if err := v.read(ctx, func(c *sqlite.Conn) error { return write(c, &b) }); err != nil {
		return err
	}
	_, err := b.WriteTo(w)
	return err
}

func (v *View) writeStream(c *sqlite.Conn, of Stream, w io.Writer) error {
	var h head
	err := query(c, "SELECT seq, at, birth FROM streams WHERE site = ? AND epoch = ?", func(s *sqlite.Stmt) error {
		birth, _ := valueAt(s, 2).([]byte)
		h = head{seq: uint64(s.ColumnInt64(0)), at: s.ColumnInt64(1), by: &author{stream: of, birth: birth}}
		return nil
	}, of.Site, of.Epoch)
	if err != nil {
		return err
	}
	if h.seq == 0 {
		return bourse.Errorf(bourse.CodeNotFound, "there is no stream of site %s with epoch %d", bourse.Quoted(string(of.Site)), of.Epoch)
	}
	f, err := newFrameWriter(w, wireSnapshot{Site: string(of.Site), Epoch: of.Epoch, Seq: h.seq, At: h.at, Birth: h.by.birth})
	if err != nil {
		return err
	}
	each := func(r record) error {
		row := snapshotRow(r)
		if r.shared {
			birth, sig, ok, err := proofOf(c, r.table, r.key)
			if err != nil || !ok || !bytes.Equal(birth, birthID(h.by.birth)) {
				return err
			}
			row.Sig = sig
		}
		return f.row(row)
	}
	for _, t := range v.tables.sorted() {
		if err := records(c, t.list, t.scan, each, of.Site, of.Epoch); err != nil {
			return err
		}
	}
	const ofStream = " WHERE site = ? AND epoch = ?"
	if err := records(c, selectTombstones+ofStream, tombstoneAt, each, of.Site, of.Epoch); err != nil {
		return err
	}
	if err := records(c, selectUnknown+ofStream, scanUnknown, each, of.Site, of.Epoch); err != nil {
		return err
	}
	return f.close()
}

func (v *View) writeShared(c *sqlite.Conn, w io.Writer) error {
	f, err := newFrameWriter(w, wireSnapshot{Shared: true})
	if err != nil {
		return err
	}
	if err := writeBirths(c, f); err != nil {
		return err
	}
	each := func(r record) error {
		birth, sig, ok, err := proofOf(c, r.table, r.key)
		if err != nil || !ok {
			return err
		}
		row := snapshotRow(r)
		row.Site, row.Epoch, row.Birth, row.Sig = string(r.Site), r.Epoch, birth, sig
		return f.row(row)
	}
	if err := allShared(c, v.tables, each); err != nil {
		return err
	}
	return f.close()
}

// writeBirths writes what the rows' signatures are checked with.
func writeBirths(c *sqlite.Conn, f *frameWriter) error {
	return query(c, "SELECT birth FROM births", func(s *sqlite.Stmt) error {
		birth, _ := valueAt(s, 0).([]byte)
		return f.frame(frameBirths, [][]byte{birth})
	})
}

func snapshotRow(r record) wireRow {
	w := wireRow{Table: r.table, Key: r.key, Deleted: r.deleted, Clock: uint64(r.clock), Seq: r.Seq, At: r.at}
	if len(r.cols) > 0 {
		w.Columns = make(map[string]any, len(r.cols))
	}
	for _, c := range r.cols {
		w.Columns[c.name] = c.value
	}
	return w
}

// records calls each with what a SELECT gives.
func records(c *sqlite.Conn, sql string, scan func(*sqlite.Stmt) (record, error), each func(record) error, args ...any) error {
	return query(c, sql, func(s *sqlite.Stmt) error {
		r, err := scan(s)
		if err != nil {
			return err
		}
		return each(r)
	}, args...)
}

func tombstoneAt(s *sqlite.Stmt) (record, error) { return scanTombstone(s), nil }
