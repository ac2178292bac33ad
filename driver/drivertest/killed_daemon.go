package drivertest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// liveLanes is how many machines a daemon that is to be killed leads at once. It
// shares no factor with fates: each lane has machines of all of them.
const liveLanes = 5

// LiveOn is what a daemon does that is to be killed: it recovers d, then starts,
// stops and destroys machines as fast as it can, numbered from first on, and writes
// what it is about to do and what has been acknowledged. A worker's store would
// hold the same. like says what is the same of all their tasks: an image with a
// shell, an environment. It returns only when d cannot be recovered.
func LiveOn(d driver.Driver, like driver.Task, first int, to io.Writer) error {
	ctx := context.Background()
	if _, err := d.Recover(ctx); err != nil {
		return err
	}
	var mu sync.Mutex
	tell := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = fmt.Fprintf(to, format+"\n", args...) // one write, so a kill cannot tear it
	}
	var wg sync.WaitGroup
	for lane := range liveLanes {
		wg.Go(func() {
			for n := first + lane; ; n += liveLanes {
				live(ctx, d, like, n, tell)
			}
		})
	}
	wg.Wait()
	return nil
}

// fate is what becomes of a machine, by its number.
type fate int

const (
	fateLeft    fate = iota // left running
	fateEnds                // reads its stdin, and ends by itself with a code that its number tells
	fateRemoved             // destroyed as it runs
	fateStopped             // stopped and forgotten
	fates
)

func fateOf(id bourse.MachineID) fate { return fate(numberOf(id)) % fates }

const numbered = "000001%08x" // ids of machines

func numberOf(id bourse.MachineID) (n int) {
	_, _ = fmt.Sscanf(string(id), numbered, &n)
	return n
}

// killedInput is how many bytes are on the stdin of a program that ends by
// itself: more than the pipes on its way can hold.
const killedInput = 300 << 10

// live leads one machine to its fate.
func live(ctx context.Context, d driver.Driver, t driver.Task, n int, tell func(string, ...any)) {
	t.ID = driver.TaskID{Machine: bourse.MachineID(fmt.Sprintf(numbered, n)), Boot: 1}
	t.Command = []string{"sleep", "1000"}
	fate := fateOf(t.ID.Machine)
	if fate == fateEnds {
		t.Stdin = bytes.Repeat([]byte("x"), killedInput)
		t.Command = sh(fmt.Sprintf("[ $(wc -c) = %d ] && echo out %d; exit %d", killedInput, n, n%100))
	}
	tell("intent %s", t.ID.Machine)
	status, err := d.Start(ctx, t)
	if err != nil {
		tell("error %v", err)
		return
	}
	tell("started %s %d", t.ID.Machine, status.PID)
	switch fate {
	case fateRemoved:
		tell("destroying %s", t.ID.Machine)
		err = d.Destroy(ctx, t.ID.Machine)
	case fateStopped:
		tell("destroying %s", t.ID.Machine)
		if err = d.Stop(ctx, t.ID, "SIGTERM", 0); err == nil {
			err = d.DiscardExit(ctx, t.ID)
		}
	default:
		return
	}
	if err != nil {
		tell("error %v", err)
		return
	}
	tell("destroyed %s", t.ID.Machine)
}
