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

// Snapshot writes a stream's current contents to w: the site's owned rows, and those shared rows
// and tombstones whose current versions were written in the stream. Memory use does not depend on
// the snapshot's size. SQLite's log cannot be truncated while a snapshot is being written, so w
// should have a deadline. Snapshot returns CodeNotFound if the view does not contain the stream.
func (v *View) Snapshot(ctx context.Context, s wire.Stream, w io.Writer) error {
	err := v.sendSnapshot(ctx, w, func(c *sqlite.Conn, w io.Writer) error { return v.writeStream(c, s, w) })
	if err != nil {
		return fmt.Errorf("snapshot of %s: %w", s.Site, err)
	}
	return nil
}

// SharedSnapshot writes all shared rows and their tombstones to w.
func (v *View) SharedSnapshot(ctx context.Context, w io.Writer) error {
	err := v.sendSnapshot(ctx, w, v.writeShared)
	if err != nil {
		return fmt.Errorf("snapshot of shared rows: %w", err)
	}
	return nil
}

// sendSnapshot calls write with a connection to a consistent snapshot of the file. In an in-memory
// view, readers block the writer, so sendSnapshot buffers the output; a slow recipient then does
// not block the writer.
func (v *View) sendSnapshot(ctx context.Context, w io.Writer, write func(*sqlite.Conn, io.Writer) error) error {
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
		return bourse.Errorf(bourse.CodeNotFound, "stream of site %s with epoch %d not found", bourse.Quoted(string(of.Site)), of.Epoch)
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

// writeBirths writes the birth certificates that recipients need to check the rows' signatures.
func writeBirths(c *sqlite.Conn, f *wire.FrameWriter) error {
	return schema.Query(c, "SELECT birth FROM births", func(s *sqlite.Stmt) error {
		birth, _ := schema.ValueAt(s, 0).([]byte)
		return f.Birth(birth)
	})
}
