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

// spoolPattern names the files that snapshots wait in; what a crash left is
// removed at Open.
const spoolPattern = ".restore-*"

// Spool is a snapshot that has been received and found whole: frames of rows,
// in a file beside the view's, or in memory for a view in memory.
type Spool struct {
	Head SnapshotHead
	file *os.File // nil in memory
	mem  bytes.Buffer

	Births map[string][]byte // by id

	mu     sync.Mutex // held while the writer reads
	closed bool
}

// Receive reads a snapshot that is wanted, to its end. It waits in a file beside
// the one at path, or in memory when there is none.
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
			return nil, bourse.Errorf(bourse.CodeUnavailable, "keep a snapshot: %w", err)
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
			if err := f.ends(body, rows); err != nil {
				return err
			}
			return full(out.Flush())
		case kind == frameBirths:
			if err := sp.takeBirths(body); err != nil {
				return err
			}
			continue
		case kind != frameRows:
			return bourse.Errorf(bourse.CodeInvalid, "a malformed snapshot: a frame of kind %q", kind)
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
				return full(err)
			}
			if _, err := out.Write(raw); err != nil {
				return full(err)
			}
		}
	}
	return fmt.Errorf("receive a snapshot: %w", context.Cause(ctx))
}

// maxBirths bounds the births of one snapshot.
const maxBirths = 4096

func (sp *Spool) takeBirths(body []byte) error {
	var part [][]byte
	if err := decodeBody(body, &part); err != nil {
		return err
	}
	for _, birth := range part {
		if len(birth) > maxBirth || len(sp.Births) == maxBirths {
			return bourse.Errorf(bourse.CodeInvalid, "a snapshot with more births than there are servers")
		}
		sp.Births[string(BirthID(birth))] = bytes.Clone(birth)
	}
	return nil
}

func full(err error) error {
	if err != nil {
		return bourse.Errorf(bourse.CodeUnavailable, "keep a snapshot: %w", err)
	}
	return nil
}

// Rows calls take with each row, from the first one on; raw is good for the
// call. A row that cannot be decoded comes with the error.
func (sp *Spool) Rows(take func(raw []byte, w RowBody, err error) error) error {
	var r io.Reader = bytes.NewReader(sp.mem.Bytes())
	if sp.file != nil {
		if _, err := sp.file.Seek(0, io.SeekStart); err != nil {
			return full(err)
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
			return full(err)
		}
		n := int(binary.BigEndian.Uint32(size[:])) // of a frame, whose size was bounded
		buf = slices.Grow(buf[:0], n)[:n]
		if _, err := io.ReadFull(in, buf); err != nil {
			return full(err)
		}
		w, err := DecodeRow(buf)
		if err := take(buf, w, err); err != nil {
			return err
		}
	}
}

// Use calls f unless the spool is closed: then no one waits for the outcome.
func (sp *Spool) Use(f func() error) error {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if sp.closed {
		return nil
	}
	return f()
}

// Close returns up the snapshot, when the writer does not read it.
func (sp *Spool) Close() error {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	sp.closed = true
	if sp.file == nil {
		return nil
	}
	return errors.Join(sp.file.Close(), os.Remove(sp.file.Name()))
}

// ClearSpools removes what a crash left.
func ClearSpools(path string) {
	names, err := filepath.Glob(path + spoolPattern)
	if err != nil {
		return // a path with a star in it: nothing worse than a file left behind
	}
	for _, name := range names {
		_ = os.Remove(name) // it only takes space
	}
}
