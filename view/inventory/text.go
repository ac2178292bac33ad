package inventory

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"time"

	"github.com/bourse-dev/bourse/view/wire"
)

// cleanText makes s a text that every member takes: what is not UTF-8 becomes
// U+FFFD, zero bytes go.
func cleanText[S ~string](s S) string {
	t := strings.ToValidUTF8(string(s), "\uFFFD")
	return strings.ReplaceAll(t, "\x00", "")
}

// jsonText writes v as compact JSON that every member takes: raw JSON within
// it may hold what is not UTF-8, or nest too deep. What has no such form, or
// exceeds MaxValue, becomes fallback.
func jsonText(v any, fallback string) string {
	if s, ok := jsonFits(v); ok {
		return s
	}
	return fallback
}

func jsonFits(v any) (string, bool) {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false) // raw JSON comes back as it went in, and people read it
	if e.Encode(v) != nil {
		return "", false
	}
	s := strings.ToValidUTF8(strings.TrimSuffix(buf.String(), "\n"), "\uFFFD")
	return s, len(s) <= wire.MaxValue && wire.CheckJSON(s) == nil
}

// nanos returns a time as a column has it: nanoseconds since 1970. The zero time,
// and all before 1970, is 0; what is past the year 2262 is the last moment
// before. So it keeps the order of times.
func nanos(t time.Time) int64 {
	switch s := t.Unix(); {
	case s < 0:
		return 0
	case s >= math.MaxInt64/int64(time.Second):
		return math.MaxInt64
	}
	return t.UnixNano()
}

// moment reads what nanos wrote; 0 is the zero time.
func moment(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

func boolean(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
