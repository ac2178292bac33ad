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

// liveLanes is the number of goroutines that concurrently handle machines. It is coprime to the number of fates, so
// each goroutine handles machines with every fate.
const liveLanes = 5

// LiveOn acts as a daemon that a test will kill. It recovers d, then starts, stops and destroys machines as fast as it
// can. The machines are numbered starting with first. Before each operation, LiveOn writes a line to the given writer,
// and another line after the operation has succeeded. like is the template for all tasks: it specifies their
// environment and their image, which must contain a shell. LiveOn returns only if d cannot be recovered.
func LiveOn(d driver.Driver, like driver.Task, first int, to io.Writer) error {
	ctx := context.Background()
	if _, err := d.Recover(ctx); err != nil {
		return err
	}
	var mu sync.Mutex
	tell := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = fmt.Fprintf(to, format+"\n", args...) // a single write, so that a kill does not leave half a line
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

// fate determines what LiveOn does with a machine. It depends on the machine's number.
type fate int

const (
	fateLeft    fate = iota // left running
	fateEnds                // reads its stdin, then exits with a code derived from its number
	fateRemoved             // destroyed while running
	fateStopped             // stopped and discarded
	fates
)

func fateOf(id bourse.MachineID) fate { return fate(numberOf(id)) % fates }

const numbered = "000001%08x" // format of machine ids

func numberOf(id bourse.MachineID) (n int) {
	_, _ = fmt.Sscanf(string(id), numbered, &n)
	return n
}

// killedInput is the number of bytes that a program with fateEnds reads from stdin. It exceeds the capacity of the pipe
// to the program.
const killedInput = 300 << 10

// live starts machine number n and then performs the operations that the machine's fate requires.
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
