package process

import (
	"os"
	"runtime/pprof"
	"strconv"
	"testing"
	"time"
)

func TestProf(t *testing.T) {
	if os.Getenv("PROF") == "" {
		t.Skip()
	}
	mode := LimitMode(os.Getenv("PROF"))
	h := newHost(t, func(c *Config) { c.Limits = mode })
	d, _ := h.recovered(t)
	n, _ := strconv.Atoi(os.Getenv("N"))
	var start, destroy time.Duration
	_ = pprof.StartCPUProfile
	for range n {
		tk := program("sleep", "1000")
		a := time.Now()
		if _, err := d.Start(t.Context(), tk); err != nil {
			t.Fatal(err)
		}
		b := time.Now()
		if err := d.Destroy(t.Context(), tk.ID.Machine); err != nil {
			t.Fatal(err)
		}
		start += b.Sub(a)
		destroy += time.Since(b)
	}
	t.Log(mode, start/time.Duration(n), destroy/time.Duration(n))
}
