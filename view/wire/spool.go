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

// spoolPattern is appended to the name of the view's file to form the pattern for names of spool
// files.
const spoolPattern = ".restore-*"

// Spool is a complete snapshot that has been received and checked. Its rows are stored in a file next to the view's
// file or, for an in-memory view, in memory.
type Spool struct {
	Head SnapshotHead
	file *os.File // nil if in memory
	mem  bytes.Buffer

	Births map[string][]byte // birth certificates by ID

	mu     sync.Mutex // held while Use is in progress
	closed bool
}

// Receive reads a complete snapshot and stores it in a file next to path, or in memory if path is "". Before it reads
// the rows, it calls wanted with the head, and stops if wanted returns an error.
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
			return bourse.Errorf(bourse.CodeInvalid, "malformed snapshot: unexpected frame of kind %q", kind)
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

// maxBirths is the maximum number of birth certificates in one snapshot.
const maxBirths = 4096

func (sp *Spool) takeBirths(body []byte) error {
	var part [][]byte
	if err := decodeBody(body, &part); err != nil {
		return err
	}
	for _, birth := range part {
		if len(birth) > maxBirth || len(sp.Births) == maxBirths {
			return bourse.Errorf(bourse.CodeInvalid, "the snapshot contains too many birth certificates, or one that is too large")
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

// Rows calls take for each row of the snapshot. raw is the encoded row, which is valid only during
// the call. If the row cannot be decoded, err is set.
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

// Use calls f, and keeps the spool open until f returns. If the spool has already been closed, Use
// does nothing, because nobody waits for the result anymore.
func (sp *Spool) Use(f func() error) error {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if sp.closed {
		return nil
	}
	return f()
}

// Close deletes the snapshot. If Use is in progress, Close waits until it has ended.
func (sp *Spool) Close() error {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	sp.closed = true
	if sp.file == nil {
		return nil
	}
	return errors.Join(sp.file.Close(), os.Remove(sp.file.Name()))
}

// ClearSpools removes spool files that a crash has left behind. path is the view's file.
func ClearSpools(path string) {
	names, err := filepath.Glob(path + spoolPattern)
	if err != nil {
		return // path contains special pattern characters; leaving the files in place is harmless
	}
	for _, name := range names {
		_ = os.Remove(name) // a remaining file only occupies space
	}
}
