package process

import (
	"os"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	const rest = " S 1 7 77 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0 99 100 200"
	for name, c := range map[string]struct {
		text string
		want procStat
		ok   bool
	}{
		"usual":              {"7 (sleep)" + rest, procStat{session: 77, cpu: time.Second}, true},
		"a name of anything": {"7 (a) S 1 2 3 (b c)" + rest, procStat{session: 77, cpu: time.Second}, true},
		"short":              {"7 (sleep) S 1 7 77", procStat{}, false},
		"no name":            {"7 sleep" + rest, procStat{}, false},
		"no number":          {"7 (sleep) S 1 7 x 0 -1 4194560 1 2 3 4 10 20 30 40", procStat{}, false},
		"negative":           {"7 (sleep) S 1 7 77 0 -1 4194560 1 2 3 4 10 -20 30 40", procStat{}, false},
		"nothing":            {"", procStat{}, false},
	} {
		if got, ok := parseStat([]byte(c.text)); got != c.want || ok != c.ok {
			t.Errorf("%s: got %+v, %v, want %+v, %v", name, got, ok, c.want, c.ok)
		}
	}
}

func TestAccountOfThisProcess(t *testing.T) {
	u := account([]int{os.Getpid(), 1 << 30})
	if u.PIDs != 1 || u.Memory < 1<<20 || u.CPU < 0 {
		t.Errorf("got usage %+v, want one process with some memory", u)
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("7 (sleep) S 1 7 77 0 -1 4194560 1 2 3 4 10 20 30 40 20"))
	f.Add([]byte("7 () )("))
	f.Add([]byte("1 2 3"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if ps, ok := parseStat(b); ok && ps.cpu < 0 {
			t.Errorf("%q gave %+v", b, ps)
		}
		if private(string(b)) < 0 {
			t.Errorf("%q is negative", b)
		}
	})
}
