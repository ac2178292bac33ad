package process

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

func TestFrameRoundTrip(t *testing.T) {
	want := &request{
		ID: 7, Op: opStart, Timeout: time.Second,
		Start: &spec{
			ID:      driver.TaskID{Machine: "00000700000001", Boot: 3},
			Command: bytesOf([]string{"sh", "not \xff UTF-8", ""}),
			Env:     bytesOf([]string{"A=\x01\"<>&"}),
			Limits:  driver.Limits{Memory: 1 << 30, PIDs: 7},
			User:    &identity{Name: "x", UID: 1, GID: 2, Groups: []uint32{3}},
		},
	}
	var b bytes.Buffer
	if err := writeFrame(&b, want); err != nil {
		t.Fatal(err)
	}
	got := new(request)
	if err := readFrame(bufio.NewReader(&b), got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("came back changed (-want +got):\n%s", diff)
	}
}

func TestFrameBounds(t *testing.T) {
	large := &request{Command: [][]byte{bytes.Repeat([]byte("x"), maxFrame)}}
	if err := writeFrame(io.Discard, large); !errors.Is(err, errFrameSize) {
		t.Errorf("writing %d bytes gave %v, want %v", maxFrame, err, errFrameSize)
	}
	frame := func(length uint32, body string) *bufio.Reader {
		return bufio.NewReader(io.MultiReader(bytes.NewReader(binary.BigEndian.AppendUint32(nil, length)), strings.NewReader(body)))
	}
	if err := readFrame(frame(maxFrame+1, "{}"), new(request)); !errors.Is(err, errFrameSize) {
		t.Errorf("reading a frame that is too long gave %v, want %v", err, errFrameSize)
	}
	if err := readFrame(frame(100, "{}"), new(request)); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("reading a frame cut short gave %v, want %v", err, io.ErrUnexpectedEOF)
	}
}

func TestErrorsKeepTheirCode(t *testing.T) {
	for _, code := range bourse.Codes() {
		err := wireErrorOf(bourse.Errorf(code, "because")).err()
		if bourse.CodeOf(err) != code || err.Error() != "because" {
			t.Errorf("%s came back as %s: %v", code, bourse.CodeOf(err), err)
		}
	}
	if err := wireErrorOf(nil).err(); err != nil {
		t.Errorf("no error came back as %v", err)
	}
}

func FuzzReadFrame(f *testing.F) {
	for _, body := range []string{`{"id":1,"op":"start","start":{"command":["c2g="]}}`, `{"list":[{}]}`, `[`, `{"signal":1e99}`, ""} {
		f.Add(binary.BigEndian.AppendUint32(nil, uint32(len(body))), []byte(body))
	}
	f.Fuzz(func(t *testing.T, head, body []byte) {
		all := append(append([]byte(nil), head...), body...)
		var req request
		if readFrame(bufio.NewReader(bytes.NewReader(all)), &req) == nil {
			var b bytes.Buffer
			var again request
			if err := writeFrame(&b, &req); err != nil {
				t.Fatalf("what was read cannot be written: %v", err)
			}
			if err := readFrame(bufio.NewReader(&b), &again); err != nil {
				t.Fatalf("what was written cannot be read: %v", err)
			}
		}
		_ = readFrame(bufio.NewReader(bytes.NewReader(all)), new(reply))
	})
}
