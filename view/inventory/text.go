package inventory

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"time"

	"github.com/bourse-dev/bourse/view/wire"
)

// cleanText returns s in a form that every member accepts. It replaces invalid UTF-8 with U+FFFD and removes zero
// bytes.
func cleanText[S ~string](s S) string {
	t := strings.ToValidUTF8(string(s), "\uFFFD")
	return strings.ReplaceAll(t, "\x00", "")
}

// jsonText encodes v as compact JSON that every member accepts. It returns fallback if the result would exceed
// wire.MaxValue, or if members would reject it, for example because raw JSON in v is nested too deeply.
func jsonText(v any, fallback string) string {
	if s, ok := jsonFits(v); ok {
		return s
	}
	return fallback
}

func jsonFits(v any) (string, bool) {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false) // keep raw JSON readable and unchanged
	if e.Encode(v) != nil {
		return "", false
	}
	s := strings.ToValidUTF8(strings.TrimSuffix(buf.String(), "\n"), "\uFFFD")
	return s, len(s) <= wire.MaxValue && wire.CheckJSON(s) == nil
}

// nanos converts a time to nanoseconds since 1970, as stored in columns. It preserves the order of
// times: the zero time and times before 1970 become 0, and times after 2262 become the maximum.
func nanos(t time.Time) int64 {
	switch s := t.Unix(); {
	case s < 0:
		return 0
	case s >= math.MaxInt64/int64(time.Second):
		return math.MaxInt64
	}
	return t.UnixNano()
}

// timeOf is the inverse of nanos. 0 becomes the zero time.
func timeOf(n int64) time.Time {
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
