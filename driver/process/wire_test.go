package process

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/internal/companion"
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
	if err := companion.WriteFrame(&b, want); err != nil {
		t.Fatal(err)
	}
	got := new(request)
	if err := companion.ReadFrame(bufio.NewReader(&b), got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the decoded value differs (-want +got):\n%s", diff)
	}
}

func FuzzReadFrame(f *testing.F) {
	for _, body := range []string{`{"id":1,"op":"start","start":{"command":["c2g="]}}`, `{"list":[{}]}`, `[`, `{"signal":1e99}`, ""} {
		f.Add(binary.BigEndian.AppendUint32(nil, uint32(len(body))), []byte(body))
	}
	f.Fuzz(func(t *testing.T, head, body []byte) {
		all := append(append([]byte(nil), head...), body...)
		var req request
		if companion.ReadFrame(bufio.NewReader(bytes.NewReader(all)), &req) == nil {
			var b bytes.Buffer
			var again request
			if err := companion.WriteFrame(&b, &req); err != nil {
				t.Fatalf("the decoded frame cannot be encoded: %v", err)
			}
			if err := companion.ReadFrame(bufio.NewReader(&b), &again); err != nil {
				t.Fatalf("the encoded frame cannot be decoded: %v", err)
			}
		}
		_ = companion.ReadFrame(bufio.NewReader(bytes.NewReader(all)), new(reply))
	})
}
