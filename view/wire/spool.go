package wire

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/bourse-dev/bourse"
)

// spoolPattern is the name pattern of files that hold received snapshots. view.Open removes files
// that a crash has left behind.
const spoolPattern = ".restore-*"

// Spool is a complete snapshot that has been received and checked. Its rows are in a file next to the view's file, or
// in memory for an in-memory view.
type Spool struct {
	Head SnapshotHead
	file *os.File // nil if in memory
	mem  bytes.Buffer

	Births map[string][]byte // birth certificates by ID

	mu     sync.Mutex // held while the writer reads the snapshot
	closed bool
}

// Receive reads a complete snapshot. It calls wanted with the head, and stops if wanted returns an
// error. It stores the snapshot in a file next to path, or in memory if path is "".
func Receive(ctx context.Context, path string, r io.Reader, wanted func(SnapshotHead) error) (sp *Spool, err error) {
	f, head, err := newFrameReader(r)
	if err != nil {
		return nil, err
	}
	if err := wanted(head); err != nil {
		return nil, err
	}
	sp = &Spool{Head: head, Births: map[string][]byte{}}
	var w io.Writer = &sp.mem
	if path != "" {
		sp.file, err = os.CreateTemp(filepath.Dir(path), filepath.Base(path)+spoolPattern)
		if err != nil {
			return nil, bourse.Errorf(bourse.CodeUnavailable, "store a snapshot: %w", err)
		}
		w = sp.file
	}
	if err := sp.fill(ctx, f, w); err != nil {
		return nil, errors.Join(err, sp.Close())
	}
	return sp, nil
}

func (sp *Spool) fill(ctx context.Context, f *frameReader, w io.Writer) error {
	out := bufio.NewWriterSize(w, frameSize)
	rows := uint64(0)
	for ctx.Err() == nil {
		kind, body, err := f.next()
		switch {
		case err != nil:
			return err
		case kind == frameTail:
			if err := f.checkTail(body, rows); err != nil {
				return err
			}
			return storeError(out.Flush())
		case kind == frameBirths:
			if err := sp.takeBirths(body); err != nil {
				return err
			}
			continue
		case kind != frameRows:
			return bourse.Errorf(bourse.CodeInvalid, "malformed snapshot: it has a frame of kind %q", kind)
		}
		var part [][]byte
		if err := decodeBody(body, &part); err != nil {
			return err
		}
		rows += uint64(len(part))
		for _, raw := range part {
			var size [4]byte
			binary.BigEndian.PutUint32(size[:], uint32(len(raw)))
			if _, err := out.Write(size[:]); err != nil {
				return storeError(err)
			}
			if _, err := out.Write(raw); err != nil {
				return storeError(err)
			}
		}
	}
	return fmt.Errorf("receive a snapshot: %w", context.Cause(ctx))
}

// maxBirths limits the number of birth certificates in one snapshot.
const maxBirths = 4096

func (sp *Spool) takeBirths(body []byte) error {
	var part [][]byte
	if err := decodeBody(body, &part); err != nil {
		return err
	}
	for _, birth := range part {
		if len(birth) > maxBirth || len(sp.Births) == maxBirths {
			return bourse.Errorf(bourse.CodeInvalid, "the snapshot has too many or too large birth certificates")
		}
		sp.Births[string(BirthID(birth))] = bytes.Clone(birth)
	}
	return nil
}

func storeError(err error) error {
	if err != nil {
		return bourse.Errorf(bourse.CodeUnavailable, "store a snapshot: %w", err)
	}
	return nil
}

// Rows calls take for each row of the snapshot. raw is valid only during the call. If a row cannot
// be decoded, take receives the error.
func (sp *Spool) Rows(take func(raw []byte, w RowBody, err error) error) error {
	var r io.Reader = bytes.NewReader(sp.mem.Bytes())
	if sp.file != nil {
		if _, err := sp.file.Seek(0, io.SeekStart); err != nil {
			return storeError(err)
		}
		r = sp.file
	}
	in := bufio.NewReaderSize(r, frameSize)
	var buf []byte
	for {
		var size [4]byte
		_, err := io.ReadFull(in, size[:])
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return storeError(err)
		}
		n := int(binary.BigEndian.Uint32(size[:])) // Receive has already limited the row's size
		buf = slices.Grow(buf[:0], n)[:n]
		if _, err := io.ReadFull(in, buf); err != nil {
			return storeError(err)
		}
		w, err := DecodeRow(buf)
		if err := take(buf, w, err); err != nil {
			return err
		}
	}
}

// Use calls f. If the spool has been closed, nobody waits for the result anymore, and Use does
// nothing.
func (sp *Spool) Use(f func() error) error {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if sp.closed {
		return nil
	}
	return f()
}

// Close deletes the snapshot, after waiting for the writer to finish reading it.
func (sp *Spool) Close() error {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	sp.closed = true
	if sp.file == nil {
		return nil
	}
	return errors.Join(sp.file.Close(), os.Remove(sp.file.Name()))
}

// ClearSpools removes the spool files that a crash has left behind.
func ClearSpools(path string) {
	names, err := filepath.Glob(path + spoolPattern)
	if err != nil {
		return // path contains special pattern characters; leaving the files in place is harmless
	}
	for _, name := range names {
		_ = os.Remove(name) // a remaining file only occupies space
	}
}
