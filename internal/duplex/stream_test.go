package duplex_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/duplex"
)

var errLost = errors.New("lost")

func lost(err error) error { return fmt.Errorf("%w: %w", errLost, err) }

// answered returns a stream that receives the given reply. It discards the request.
func answered(t *testing.T, reply string) *duplex.Stream {
	t.Helper()
	var wg sync.WaitGroup
	s, err := duplex.Open(duplex.Command{Command: []string{"ls"}}, func(body io.ReadCloser) (io.ReadCloser, error) {
		wg.Go(func() { _, _ = io.Copy(io.Discard, body) })
		return io.NopCloser(strings.NewReader(reply)), nil
	}, lost)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		wg.Wait()
	})
	return s
}

func TestCopyEnds(t *testing.T) {
	const out, ping, exit = "\x05\x00\x00\x00\x02ab", "\x09\x00\x00\x00\x00", "\x07\x00\x00\x00\x0a{\"code\":3}"
	full := errors.New("full")
	tests := []struct {
		name  string
		reply string
		want  string
		err   error // expected error; nil: the command exits with code 3
		code  bourse.Code
	}{
		{"with the command", out + ping + out + exit, "abab", nil, ""},
		{"with nothing after the exit", exit + "<html>", "", nil, ""},
		{"with a failure", out + frame(8, 33, `{"code":"not_found","message":""}`), "ab", nil, bourse.CodeNotFound},
		{"with a failure without a code", frame(8, 2, "{}"), "", duplex.ErrFrame, ""},
		{"with an exit that cannot be decoded", frame(7, 1, "{"), "", errLost, ""},
		{"without an exit", out, "ab", io.ErrUnexpectedEOF, ""},
		{"without anything", "", "", io.ErrUnexpectedEOF, ""},
		{"in the middle of a frame", out[:6], "", io.ErrUnexpectedEOF, ""},
		{"with data that is not a frame", "<html>", "", duplex.ErrFrame, ""},
		{"with a frame for the other direction", frame(2, 1, "x"), "", duplex.ErrFrame, ""},
		{"when the output cannot be written", frame(6, 1, "x") + exit, "", full, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var stdout strings.Builder
			got, err := answered(t, tt.reply).Copy(&stdout, writerFunc(func([]byte) (int, error) { return 0, full }))
			if stdout.String() != tt.want {
				t.Errorf("got output %q, want %q", stdout.String(), tt.want)
			}
			switch {
			case tt.code != "":
				if bourse.CodeOf(err) != tt.code {
					t.Errorf("got %v, want code %s", err, tt.code)
				}
			case tt.err != nil:
				if !errors.Is(err, tt.err) || errors.Is(err, errLost) == errors.Is(err, full) {
					t.Errorf("got %v, want %v", err, tt.err)
				}
			case err != nil || got.Code != 3:
				t.Errorf("got %+v, %v, want code 3", got, err)
			}
		})
	}
}

func TestOpenFails(t *testing.T) {
	refused := errors.New("refused")
	_, err := duplex.Open(duplex.Command{Command: []string{"ls"}}, func(io.ReadCloser) (io.ReadCloser, error) { return nil, refused }, lost)
	if !errors.Is(err, refused) {
		t.Errorf("got %v", err)
	}
	_, err = duplex.Open(duplex.Command{Command: []string{strings.Repeat("x", duplex.MaxFrame)}}, func(io.ReadCloser) (io.ReadCloser, error) {
		t.Error("the command was sent")
		return nil, refused
	}, lost)
	if bourse.CodeOf(err) != bourse.CodeInvalid {
		t.Errorf("a command of 64 KiB: got %v", err)
	}
}

// FuzzCopy passes arbitrary bytes as the reply.
func FuzzCopy(f *testing.F) {
	f.Add([]byte(frame(5, 2, "ab") + frame(7, 10, `{"code":3}`)))
	f.Add([]byte(frame(8, 33, `{"code":"not_found","message":""}`)))
	f.Add([]byte(frame(7, 4, "null")))
	f.Fuzz(func(t *testing.T, reply []byte) {
		_, err := answered(t, string(reply)).Copy(io.Discard, io.Discard)
		if errors.Is(err, io.EOF) {
			t.Errorf("got %v for an incomplete reply, want an error other than EOF", err)
		}
	})
}
