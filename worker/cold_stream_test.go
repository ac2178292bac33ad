package worker

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
)

// A cold task's stdout is streamed to the caller as it is written, each part once. Its
// stderr is not streamed.
func TestAColdTaskStreams(t *testing.T) {
	for name, c := range map[string]struct {
		words []string
		want  []string // the parts of the output, each preceded by the second in which it arrived
	}{
		"as it comes": {
			[]string{"warn", "oops", "print", "one", "sleep", "1s", "print", "two", "sleep", "2s", "cat"},
			[]string{"0 ", "0 one\n", "1 two\n", "3 in"},
		},
		"nothing": {[]string{"sleep", "1s"}, []string{"0 "}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t, nil)
				order := cold(t, "in", c.words...)
				began := time.Now()
				var parts []string
				order.Task.Output = func(part []byte) {
					parts = append(parts, string('0'+rune(time.Since(began)/time.Second))+" "+string(part))
				}
				got := h.result(t.Context(), order)
				if !slices.Equal(parts, c.want) || !got.OK() {
					t.Errorf("parts %q, want %q; %+v", parts, c.want, got)
				}
				h.crash()
			})
		})
	}
}

// A long answer is complete and matches the streamed output. Output beyond the limit
// for answers is not streamed.
func TestALongAnswerStreams(t *testing.T) {
	for lines, whole := range map[string]bool{"50000": true, "150000": false} {
		synctest.Test(t, func(t *testing.T) {
			h := newHost(t, nil)
			order := cold(t, "", "lines", "0", lines)
			var streamed strings.Builder
			order.Task.Output = func(part []byte) { streamed.Write(part) }
			got := h.result(t.Context(), order)
			if got.OK() != whole || whole && streamed.String() != string(got.Answer) || streamed.Len() > bourse.MaxAnswer {
				t.Errorf("%s lines: %d bytes were streamed, the answer has %d: %s", lines, streamed.Len(), len(got.Answer), got.Error)
			}
			h.crash()
		})
	}
}

// A task that is refused does not call its order's Output function.
func TestARefusedTaskDoesNotStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		order := cold(t, "", "missing")
		order.Task.Output = func([]byte) { t.Error("Output was called") }
		if _, refusal, err := h.claim(t.Context(), &bourse.Claim{Order: *order}); err != nil || refusal == nil {
			t.Errorf("refusal %+v, %v", refusal, err)
		}
		h.crash()
	})
}
