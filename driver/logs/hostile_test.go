package logs

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse/internal/companion"
)

// TestHostileFrames sends frames that no daemon would send, and checks that the keeper's data
// survives.
func TestHostileFrames(t *testing.T) {
	k := newKeeper(t, nil)
	s := newShim(t, someMachine, 1)
	mustKeep(t, k, s.Source)
	framed := func(body string) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
	}
	for _, bytes := range [][]byte{
		{},
		{0},
		{0xff, 0xff, 0xff, 0xff},
		framed(""), framed("null"), framed("{}"), framed("[1]"), framed(`{"op":"keep"}`), framed(`{"op":"done","source":{"machine":"../../etc","boot":1,"stdout":"x"}}`),
		framed(`{"op":"destroy","machine":"../.."}`), framed(`{"op":"watch","machine":"/etc"}`), framed(`{"op":"hello","version":77}`),
		framed(`{"op":"format the disk"}`), framed(strings.Repeat("[", 100_000)), []byte("GET / HTTP/1.1\r\n\r\n"),
		framed(`{"op":"keep","source":{"machine":"00000100000001","boot":1,"stdout":"/dev/zero","stderr":"/etc/passwd"}}`),
	} {
		conn, err := companion.Dial(t.Context(), k.layout.run())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(bytes); err != nil {
			t.Fatal(err)
		}
		if err := conn.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, conn) // until the keeper closes the connection
		_ = conn.Close()
	}
	s.say(t, "unharmed\n")
	s.end(t)
	mustDone(t, k, s.Source)
	checkLines(t, k, "unharmed")
}

func FuzzReadRequest(f *testing.F) {
	for _, body := range []string{
		`{"op":"keep","source":{"machine":"00000100000001","boot":1,"stdout":"/a","stderr":"/b"}}`,
		`{"op":"hello","version":1,"settings":{"bytes":1,"files":2}}`, `[`, `{"version":1e99}`, "",
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		all := append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
		var req, again request
		if companion.ReadFrame(bufio.NewReader(bytes.NewReader(all)), &req) != nil {
			return
		}
		if req.Source.validate() == nil && strings.ContainsAny(string(req.Source.Machine), "/.") {
			t.Errorf("%q is accepted as a machine id", req.Source.Machine)
		}
		var b bytes.Buffer
		if err := companion.WriteFrame(&b, &req); err != nil {
			t.Fatalf("the decoded frame cannot be encoded: %v", err)
		}
		if err := companion.ReadFrame(bufio.NewReader(&b), &again); err != nil {
			t.Fatalf("the encoded frame cannot be decoded: %v", err)
		}
	})
}
