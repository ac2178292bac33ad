package nats

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse/fabric"
)

func TestCallOf(t *testing.T) {
	l := &Link{base: "bourse.test.", own: newAddress()}
	for _, id := range []callID{{l.own, 1}, {newAddress(), 1<<64 - 1}, {l.own, 0}} {
		if got, ok := l.callOf(l.answers(id)); !ok || got != id {
			t.Errorf("got %v, %v, want %v", got, ok, id)
		}
	}
	own := token(l.own)
	for _, bad := range []string{
		"", "bourse.test.", "bourse.test.at.", "bourse.test.at." + own, "bourse.test.at." + own + ".answer.", "bourse.test.at." + own + ".answer.-1",
		"bourse.test.at." + own + ".answer.01", "bourse.test.at." + own + ".answer.A", "bourse.test.at." + own + ".answer.1.2", "other.test.at." + own + ".answer.1",
		"bourse.test.at." + own + ".quote.1", "bourse.test.at." + strings.Repeat("0", 32) + ".answer.1", "bourse.test.at." + strings.Repeat("x", 32) + ".answer.1",
		"bourse.test.at." + own + ".answer." + strings.Repeat("z", 20), "_INBOX.abc.def",
	} {
		if id, ok := l.callOf(bad); ok {
			t.Errorf("%q was read as %v", bad, id)
		}
	}
}

func TestRequest(t *testing.T) {
	m := fabric.Message{Method: "PATCH", URI: "/worker/volumes/a%2Fb?x=1", Body: []byte("{}")}
	b := appendRequest(nil, "w1", &m)
	got, err := parseRequest(b[1:])
	if err != nil || got.to != "w1" || got.Method != m.Method || got.URI != m.URI || string(got.Body) != "{}" || callKind(b[0]) != callRequest {
		t.Errorf("got %+v, %v", got, err)
	}
	for n := range len(b) - len(m.Body) - 1 {
		if _, err := parseRequest(b[1 : 1+n]); err == nil {
			t.Errorf("the first %d bytes are taken", n)
		}
	}
}

// FuzzRequest shows that any bytes read as a request are written so that the
// same is read again.
func FuzzRequest(f *testing.F) {
	f.Add(appendRequest(nil, "w1", &fabric.Message{Method: "POST", URI: "/worker/claim", Body: []byte("{}")})[1:])
	f.Add([]byte{})
	f.Add([]byte{255, 255, 255, 255, 255, 255, 255, 255, 255, 1})
	f.Add([]byte{1, 'a', 255, 255, 3})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseRequest(b)
		if err != nil {
			return
		}
		again, err := parseRequest(appendRequest(nil, r.to, &r.Message)[1:])
		if err != nil || again.to != r.to || again.Method != r.Method || again.URI != r.URI || !bytes.Equal(again.Body, r.Body) {
			t.Errorf("%+v became %+v, %v", r, again, err)
		}
	})
}

// FuzzPart shows that no parts make an answer larger than what
// its first says, and that what is read is written the same way.
func FuzzPart(f *testing.F) {
	f.Add([]byte{3, 0, 200, 0, 0, 0, 2, 0, 0, 0, 0, 'h', 'i'}, []byte{})
	f.Add([]byte{3, 0, 200, 0, 0, 0, 2, 0, 0, 0, 0, 'h'}, []byte{3, 0, 200, 0, 0, 0, 2, 0, 0, 0, 1, 'i'})
	f.Add([]byte{3, 0, 200, 0, 0, 0, 0, 0, 0, 0, 0}, []byte{3, 1, 144, 255, 255, 255, 255, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, one, two []byte) {
		var c call
		for _, b := range [][]byte{one, two} {
			p, err := parsePart(b)
			if err != nil {
				continue
			}
			again := append(make([]byte, partHeader), p.data...)
			putPart(again, p.status, p.size, p.offset)
			if !bytes.Equal(again, b) {
				t.Errorf("%x is written as %x", b, again)
			}
			if c.add(&p) && len(c.have) > int(c.size) {
				t.Errorf("%d bytes of %d", len(c.have), c.size)
			}
		}
	})
}

// FuzzRoll reads what anybody may send about calls.
func FuzzRoll(f *testing.F) {
	r := roll{from: newAddress(), numbers: []uint64{1, 1<<64 - 1}}
	f.Add(r.bytes()[1:])
	f.Add(leaving(callID{r.from, 7})[1:])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := parseRoll(b); err == nil {
			again, err := parseRoll(r.bytes()[1:])
			if err != nil || again.from != r.from || !slices.Equal(again.numbers, r.numbers) {
				t.Errorf("%+v became %+v, %v", r, again, err)
			}
		}
		if id, err := parseLeave(b); err == nil && !bytes.Equal(leaving(id)[1:], b) {
			t.Errorf("%x was read as %v", b, id)
		}
	})
}
