package logs

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// TestKeeperKilled kills the keeper repeatedly while two streams are written in pieces that may end within a line. Only
// data that a killed keeper had read but not yet written may be lost. Lines must be in order and appear once, and all
// lines after the last kill must be in the log. A follower must receive the same lines.
func TestKeeperKilled(t *testing.T) {
	k := newKeeper(t, func(c *KeeperConfig) { c.Bytes, c.Files = 100_000, 10_000 })
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	s := newShim(t, someMachine, 1)
	mustKeep(t, k, s.Source)

	var followed []string
	follower := make(chan error, 1)
	go func() {
		follower <- k.Logs(t.Context(), someMachine, driver.LogQuery{Follow: true}, func(l driver.LogLine) error {
			if l.Stream == "stdout" {
				followed = append(followed, l.Text)
			}
			if strings.HasPrefix(l.Text, "last") {
				return os.ErrDeadlineExceeded // the follower has seen enough
			}
			return nil
		})
	}()

	var stop atomic.Bool
	var wg sync.WaitGroup
	var written [2]int
	for i, f := range []*os.File{s.out, s.err} {
		random := rand.New(rand.NewPCG(seed, uint64(i+1)))
		wg.Go(func() { written[i] = writeNumbered(t, f, random, &stop) })
	}
	const kills = 30
	for range kills {
		time.Sleep(time.Duration(random.IntN(20_000)) * time.Microsecond) // kill at a random moment
		pid := k.process()
		kill(t, k)
		eventually(t, "another keeper has started", func() bool { return k.process() != pid })
	}
	stop.Store(true)
	wg.Wait()
	s.say(t, "last\n")
	s.end(t)
	mustDone(t, k, s.Source)
	if err := <-follower; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the follower returned %v", err)
	}
	got := lines(t, k, someMachine)
	checkNumbered(t, "stdout", got["stdout"], written[0], kills, "last")
	checkNumbered(t, "stderr", got["stderr"], written[1], kills)
	checkNumbered(t, "followed", followed, written[0], kills, "last")
	t.Logf("%d and %d lines, %d kills", written[0], written[1], kills)
}

// writeNumbered writes numbered lines in pieces of random sizes until stop is true, and returns
// their number. Each line contains its number at both ends, so that a part of a line cannot be
// mistaken for another line.
func writeNumbered(t *testing.T, f *os.File, random *rand.Rand, stop *atomic.Bool) int {
	n := 0
	var pending []byte
	for !stop.Load() || len(pending) > 0 {
		for len(pending) < 4096 && !stop.Load() {
			pending = fmt.Appendf(pending, "line %d %s%d\n", n, strings.Repeat(".", random.IntN(100)), n)
			n++
		}
		size := min(len(pending), 1+random.IntN(4096))
		if _, err := f.Write(pending[:size]); err != nil {
			t.Errorf("write: %v", err)
			return n
		}
		pending = pending[size:]
		if random.IntN(20) == 0 {
			time.Sleep(time.Millisecond) // limits the size of the log
		}
	}
	return n
}

// checkNumbered checks that the lines are in order and end with all lines in more. For each kill, a chunk of lines may
// be missing and two lines may be broken.
func checkNumbered(t *testing.T, what string, got []string, n, kills int, more ...string) {
	t.Helper()
	if len(got) < len(more) || !slices.Equal(got[len(got)-len(more):], more) {
		t.Fatalf("%s: the log does not end with %q", what, more)
	}
	next, broken := 0, 0
	for _, text := range got[:len(got)-len(more)] {
		var i, end int
		if _, err := fmt.Sscanf(strings.ReplaceAll(text, ".", ""), "line %d %d", &i, &end); err != nil || i != end {
			broken++ // a killed keeper had read the line's beginning
			continue
		}
		if i < next || i >= n {
			t.Fatalf("%s: line %d follows line %d, of %d", what, i, next-1, n)
		}
		next = i + 1
	}
	lost := n - (len(got) - len(more) - broken)
	if most := kills * chunk / len("line 0\n"); broken > 2*kills || lost > most {
		t.Errorf("%s: %d of %d lines are missing and %d broken after %d kills", what, lost, n, broken, kills)
	}
	t.Logf("%s: %d of %d lines are missing, %d are broken", what, lost, n, broken)
}

// TestBothKilled kills the keeper and the daemon. The container writes until its FIFO is full, and then ends. Once the
// keeper and the daemon are running again, the log must contain everything.
func TestBothKilled(t *testing.T) {
	k := newKeeper(t, nil)
	s := newShim(t, someMachine, 1)
	mustKeep(t, k, s.Source)
	s.say(t, "before\n")
	awaitLine(t, k, "before")
	pid := k.process()
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	k.pid = pid
	kill(t, k)
	s.say(t, "meanwhile\n")
	k = NewKeeper(k.cfg)
	t.Cleanup(func() { _ = k.Close() })
	if err := k.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustKeep(t, k, s.Source)
	s.end(t)
	mustDone(t, k, s.Source)
	checkLines(t, k, "before", "meanwhile")
}

// TestWritersEndWhileNobodyReads kills the keeper, and then ends the container while its output is still in the FIFO,
// which the daemon holds open. The output must reach the log.
func TestWritersEndWhileNobodyReads(t *testing.T) {
	k := newKeeper(t, nil)
	s := newShim(t, someMachine, 1)
	mustKeep(t, k, s.Source)
	k.connecting <- struct{}{} // prevents a new keeper from starting
	kill(t, k)
	eventually(t, "the keeper's exit is noticed", func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.lease == nil
	})
	s.say(t, "the last words\n")
	s.end(t)
	<-k.connecting
	mustDone(t, k, s.Source)
	checkLines(t, k, "the last words")
}

func checkLines(t *testing.T, k *Keeper, want ...string) {
	t.Helper()
	got := lines(t, k, someMachine)["stdout"]
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("log: got %q, want %q", got, want)
	}
}

// TestManyMachines logs the output of many machines concurrently, and kills the keeper in the meantime.
func TestManyMachines(t *testing.T) {
	k := newKeeper(t, nil)
	const machines = 50
	var shims []*shim
	for i := range machines {
		s := newShim(t, bourse.MachineID(fmt.Sprintf("000001%08x", i)), 1)
		shims = append(shims, s)
		mustKeep(t, k, s.Source)
		s.say(t, fmt.Sprintf("one %d\n", i))
		if i == machines/2 {
			for _, s := range shims { // so that the keeper has logged everything that it has read before it is killed
				eventually(t, "the line is in the log", func() bool { return len(lines(t, k, s.Machine)["stdout"]) == 1 })
			}
			kill(t, k)
		}
	}
	for i, s := range shims {
		s.say(t, fmt.Sprintf("two %d\n", i))
		s.end(t)
	}
	for i, s := range shims {
		mustDone(t, k, s.Source)
		want := fmt.Sprintf("one %d|two %d", i, i)
		if got := strings.Join(lines(t, k, s.Machine)["stdout"], "|"); got != want {
			t.Errorf("log of machine %d: got %q, want %q", i, got, want)
		}
	}
}
