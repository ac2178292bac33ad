package endpoint

import (
	"strconv"
	"time"

	"github.com/bourse-dev/bourse"
)

// step is the duration of one step of an order.
type step struct {
	name string
	took time.Duration
}

// stepsOf returns an order's steps in the sequence in which they were executed.
func stepsOf(t *bourse.Times) [4]step {
	return [...]step{{"quote", t.Quote}, {"rank", t.Rank}, {"claim", t.Claim}, {"start", t.Start}}
}

// ServerTiming returns the durations of an order's steps as a Server-Timing header, in milliseconds.
func ServerTiming(t bourse.Times) string {
	b := make([]byte, 0, 96)
	put := func(name string, took time.Duration) {
		b = append(append(b, name...), ";dur="...)
		b = strconv.AppendFloat(b, float64(took)/float64(time.Millisecond), 'f', 3, 64)
	}
	for _, s := range stepsOf(&t) {
		put(s.name, s.took)
		b = append(b, ", "...)
	}
	put("total", t.Total)
	return string(b)
}
