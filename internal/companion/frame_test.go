package companion

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
)

func TestFrameBounds(t *testing.T) {
	large := map[string][]byte{"command": bytes.Repeat([]byte("x"), MaxFrame)}
	if err := WriteFrame(io.Discard, large); !errors.Is(err, ErrFrameSize) {
		t.Errorf("writing %d bytes gave %v, want %v", MaxFrame, err, ErrFrameSize)
	}
	frame := func(length uint32, body string) *bufio.Reader {
		return bufio.NewReader(io.MultiReader(bytes.NewReader(binary.BigEndian.AppendUint32(nil, length)), strings.NewReader(body)))
	}
	if err := ReadFrame(frame(MaxFrame+1, "{}"), new(struct{})); !errors.Is(err, ErrFrameSize) {
		t.Errorf("reading a frame that is too large gave %v, want %v", err, ErrFrameSize)
	}
	if err := ReadFrame(frame(100, "{}"), new(struct{})); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("reading a truncated frame gave %v, want %v", err, io.ErrUnexpectedEOF)
	}
}

func TestErrorsKeepTheirCode(t *testing.T) {
	for _, code := range bourse.Codes() {
		err := ErrorOf(bourse.Errorf(code, "because")).Err()
		if bourse.CodeOf(err) != code || err.Error() != "because" {
			t.Errorf("%s was decoded as %s: %v", code, bourse.CodeOf(err), err)
		}
	}
	if err := ErrorOf(nil).Err(); err != nil {
		t.Errorf("a nil error was decoded as %v", err)
	}
}

func FuzzReadFrame(f *testing.F) {
	for _, body := range []string{`{"code":"invalid","message":"x"}`, "[", "null", `{"code":1e99}`, ""} {
		f.Add(binary.BigEndian.AppendUint32(nil, uint32(len(body))), []byte(body))
	}
	f.Add([]byte{0xff, 0xff, 0xff, 0xff}, []byte("GET / HTTP/1.1"))
	f.Fuzz(func(t *testing.T, head, body []byte) {
		all := append(append([]byte(nil), head...), body...)
		var got Error
		if ReadFrame(bufio.NewReader(bytes.NewReader(all)), &got) != nil {
			return
		}
		var b bytes.Buffer
		var again Error
		if err := WriteFrame(&b, got); err != nil {
			t.Fatalf("a decoded value cannot be encoded: %v", err)
		}
		if err := ReadFrame(bufio.NewReader(&b), &again); err != nil || again != got {
			t.Fatalf("%+v was decoded as %+v, %v", got, again, err)
		}
	})
}
