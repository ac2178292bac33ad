package view

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/schema"

	"github.com/bourse-dev/bourse/view/wire"
)

// Snapshot writes all that is left of a stream: its owned rows, and its shared
// rows and tombstones that no other has replaced. It needs little memory,
// whatever the size. As long as it goes on, the file's log cannot be cleared:
// give w a deadline. CodeNotFound: we do not have the stream.
func (v *View) Snapshot(ctx context.Context, s wire.Stream, w io.Writer) error {
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
		return v.Read(ctx, func(c *sqlite.Conn) error { return write(c, w) })
	}
	var b bytes.Buffer
	if err := v.Read(ctx, func(c *sqlite.Conn) error { return write(c, &b) }); err != nil {
		return err
	}
	_, err := b.WriteTo(w)
	return err
}

func (v *View) writeStream(c *sqlite.Conn, of wire.Stream, w io.Writer) error {
	var h head
	err := schema.Query(c, "SELECT seq, at, birth FROM streams WHERE site = ? AND epoch = ?", func(s *sqlite.Stmt) error {
		birth, _ := schema.ValueAt(s, 2).([]byte)
		h = head{seq: uint64(s.ColumnInt64(0)), at: s.ColumnInt64(1), by: &wire.Author{Stream: of, Birth: birth}}
		return nil
	}, of.Site, of.Epoch)
	if err != nil {
		return err
	}
	if h.seq == 0 {
		return bourse.Errorf(bourse.CodeNotFound, "there is no stream of site %s with epoch %d", bourse.Quoted(string(of.Site)), of.Epoch)
	}
	f, err := wire.NewFrameWriter(w, wire.SnapshotHead{Site: string(of.Site), Epoch: of.Epoch, Seq: h.seq, At: h.at, Birth: h.by.Birth})
	if err != nil {
		return err
	}
	each := func(r wire.Version) error {
		row := wire.BodyOfVersion(r)
		if r.Shared {
			birth, sig, ok, err := schema.ProofOf(c, r.Table, r.Key)
			if err != nil || !ok || !bytes.Equal(birth, wire.BirthID(h.by.Birth)) {
				return err
			}
			row.Sig = sig
		}
		return f.Row(row)
	}
	if err := v.tables.OfStream(c, of, each); err != nil {
		return err
	}
	return f.Close()
}

func (v *View) writeShared(c *sqlite.Conn, w io.Writer) error {
	f, err := wire.NewFrameWriter(w, wire.SnapshotHead{Shared: true})
	if err != nil {
		return err
	}
	if err := writeBirths(c, f); err != nil {
		return err
	}
	each := func(r wire.Version) error {
		birth, sig, ok, err := schema.ProofOf(c, r.Table, r.Key)
		if err != nil || !ok {
			return err
		}
		row := wire.BodyOfVersion(r)
		row.Site, row.Epoch, row.Birth, row.Sig = string(r.Site), r.Epoch, birth, sig
		return f.Row(row)
	}
	if err := v.tables.EachShared(c, each); err != nil {
		return err
	}
	return f.Close()
}

// writeBirths writes what the rows' signatures are checked with.
func writeBirths(c *sqlite.Conn, f *wire.FrameWriter) error {
	return schema.Query(c, "SELECT birth FROM births", func(s *sqlite.Stmt) error {
		birth, _ := schema.ValueAt(s, 0).([]byte)
		return f.Birth(birth)
	})
}
