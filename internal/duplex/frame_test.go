package duplex_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/bourse-dev/bourse/internal/duplex"
)

func frame(kind byte, length uint32, data string) string {
	return string(binary.BigEndian.AppendUint32([]byte{kind}, length)) + data
}

func TestFrames(t *testing.T) {
	tests := []struct {
		name string
		sent string
		want string // the kind and payload of each frame
		end  error
	}{
		{"nothing", "", "", io.EOF},
		{"one", frame(2, 5, "hello"), "2:hello ", io.EOF},
		{"several", frame(2, 1, "a") + frame(3, 0, "") + frame(5, 2, "bc"), "2:a 3: 5:bc ", io.EOF},
		{"the largest", frame(5, duplex.MaxFrame, strings.Repeat("x", duplex.MaxFrame)), "5:" + strings.Repeat("x", duplex.MaxFrame) + " ", io.EOF},
		{"a truncated header", frame(2, 1, "a") + "\x02\x00", "2:a ", io.ErrUnexpectedEOF},
		{"a truncated frame", frame(2, 6, "hello"), "", io.ErrUnexpectedEOF},
		{"a frame without its payload", frame(2, 6, ""), "", io.ErrUnexpectedEOF},
		{"too large", frame(2, duplex.MaxFrame+1, ""), "", duplex.ErrFrame},
		{"absurdly large", frame(2, math.MaxUint32, ""), "", duplex.ErrFrame},
		{"of no kind", frame(0, 0, ""), "", duplex.ErrFrame},
		{"an unknown kind", frame(10, 0, ""), "", duplex.ErrFrame},
		{"HTML", "<html>", "", duplex.ErrFrame},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, from := range []io.Reader{strings.NewReader(tt.sent), iotest.OneByteReader(strings.NewReader(tt.sent))} {
				got, err := readAll(from)
				if got != tt.want || !errors.Is(err, tt.end) {
					t.Errorf("got %.80q and %v, want %.80q and %v", got, err, tt.want, tt.end)
				}
			}
		})
	}
}

func readAll(from io.Reader) (string, error) {
	var got strings.Builder
	for r := duplex.NewReader(from); ; {
		kind, data, err := r.Next()
		if err != nil {
			return got.String(), err
		}
		got.WriteString(string('0'+rune(kind)) + ":" + string(data) + " ")
	}
}

// TestWriteSplits checks that Write splits data so that no frame exceeds the maximum, and that it
// writes each frame in one call.
func TestWriteSplits(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789"), duplex.MaxFrame/4) // two and a half frames
	var sent bytes.Buffer
	writes, flushes := 0, 0
	w := duplex.NewWriter(writerFunc(func(p []byte) (int, error) { writes++; return sent.Write(p) }), func() error { flushes++; return nil })
	if n, err := w.As(duplex.Stdout).Write(data); n != len(data) || err != nil {
		t.Fatalf("got %d, %v", n, err)
	}
	if n, err := w.As(duplex.Stdout).Write(nil); n != 0 || err != nil {
		t.Errorf("write of no data: got %d, %v", n, err)
	}
	if writes != 3 || flushes != 3 {
		t.Errorf("got %d writes and %d flushes, want 3 of each", writes, flushes)
	}
	var got []byte
	r := duplex.NewReader(&sent)
	kind, part, err := r.Next()
	for ; err == nil; kind, part, err = r.Next() {
		if kind != duplex.Stdout {
			t.Errorf("got kind %d, want Stdout", kind)
		}
		got = append(got, part...)
	}
	if !errors.Is(err, io.EOF) || !bytes.Equal(got, data) {
		t.Errorf("got %d bytes and error %v, want the %d bytes that were written and EOF", len(got), err, len(data))
	}
}

func TestWriteFails(t *testing.T) {
	full := errors.New("full")
	data := make([]byte, 2*duplex.MaxFrame)
	n, err := duplex.NewWriter(iotest.TruncateWriter(io.Discard, 0), func() error { return full }).Write(duplex.Stdin, data)
	if n != 0 || !errors.Is(err, full) {
		t.Errorf("got %d, %v", n, err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// FuzzReader checks that a Reader that reads arbitrary bytes does not use much more memory than the
// largest frame, and that every frame that it returns can be written and read again.
func FuzzReader(f *testing.F) {
	for _, s := range []string{"", frame(1, 2, "{}"), frame(2, 5, "hello") + frame(3, 0, ""), frame(4, 4, "\x00\x18\x00\x50"), frame(7, 9, `{"code":0`), frame(2, math.MaxUint32, "x"), "\x05"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		r := duplex.NewReader(bytes.NewReader(sent))
		var again bytes.Buffer
		w := duplex.NewWriter(&again, nil)
		for {
			kind, data, err := r.Next()
			if err != nil {
				break
			}
			if len(data) > duplex.MaxFrame || cap(data) > 4*duplex.MaxFrame {
				t.Fatalf("got a frame of %d bytes in a buffer of %d bytes, which exceeds the limit", len(data), cap(data))
			}
			if kind == duplex.Resize {
				if size, err := duplex.SizeOf(data); err == nil && !bytes.Equal(size.Bytes(), data) {
					t.Errorf("%x was decoded as %v, which has another encoding", data, size)
				}
			}
			if _, err := w.Write(kind, data); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.HasPrefix(sent, again.Bytes()) {
			t.Errorf("%x was decoded as %x", sent, again.Bytes())
		}
	})
}
