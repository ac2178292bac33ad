package cli

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
)

func TestSpinner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		stop := Spin(Stream{ReadWriter: &b, TTY: true}, "waiting")
		time.Sleep(spinnerDelay / 2)
		stop()
		stop()
		if b.Len() != 0 {
			t.Errorf("a short wait shows %q, want nothing", b.String())
		}
		stop = Spin(Stream{ReadWriter: &b, TTY: true}, "waiting")
		time.Sleep(time.Second)
		stop()
		if s := b.String(); !strings.Contains(s, "waiting") || !strings.HasSuffix(s, "\r\x1b[K") {
			t.Errorf("a long wait shows %q, want the text and finally an empty line", s)
		}
		b.Reset()
		stop = Spin(Stream{ReadWriter: &b}, "waiting")
		time.Sleep(time.Second)
		stop()
		if b.Len() != 0 {
			t.Errorf("without a terminal: got %q, want nothing", b.String())
		}
	})
}

func TestConfirm(t *testing.T) {
	for answer, want := range map[string]bourse.Code{"y\n": "", "YES\n": "", "n\n": bourse.CodeCanceled, "\n": bourse.CodeCanceled, "": bourse.CodeCanceled, "yep\n": bourse.CodeCanceled} {
		var asked bytes.Buffer
		s := &Shell{Env: Env{
			In: Stream{ReadWriter: bytes.NewBufferString(answer), TTY: true}, Err: Stream{ReadWriter: &asked, TTY: true},
		}}
		err := s.Confirm(t.Context(), false, "destroy web")
		if bourse.CodeOf(err) != want || asked.String() != "destroy web? [y/N] " {
			t.Errorf("answer %q: %v after %q, want code %q", answer, err, asked.String(), want)
		}
		if err := s.Confirm(t.Context(), true, "destroy web"); err != nil {
			t.Errorf("confirmation with --yes: %v", err)
		}
	}
	pipe := &Shell{Env: Env{In: Stream{ReadWriter: bytes.NewBufferString("y\n")}, Err: Stream{ReadWriter: &bytes.Buffer{}, TTY: true}}}
	if err := pipe.Confirm(t.Context(), false, "destroy web"); bourse.CodeOf(err) != bourse.CodeInvalid {
		t.Errorf("answer from a pipe: %v, want invalid", err)
	}
}
