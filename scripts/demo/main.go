// Command demo shows Bourse's main job from beginning to end, as a person
// would do it, and fails if any of it does not happen: a dev cluster comes up,
// a program is placed, started and called, the decision is told, an order is
// refused with reasons, the daemon under the program is killed and adopts it
// again, a request starts the machine of an app at zero, which stops when no one asks
// any more, and everything is gone at the end.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// patience bounds the whole demo.
const patience = 2 * time.Minute

func main() {
	binary := flag.String("binary", "bin/bourse", "the program to show")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	began := time.Now()
	if err := run(ctx, *binary); err != nil {
		fmt.Fprintf(os.Stderr, "\nThe demo failed: %v\n", err)
		os.Exit(1)
	}
	fmt.Printf("\nAll of it happened, in %.1f s.\n", time.Since(began).Seconds())
}

func run(ctx context.Context, binary string) (err error) {
	path, err := filepath.Abs(binary)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "bourse-demo-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	d := &demo{binary: path, dir: dir}
	defer d.kill() // whatever a failure has left

	for _, step := range []struct {
		title string
		do    func(context.Context) error
	}{
		{"Build a small HTTP server", d.buildHello},
		{"Start a cluster: three regions, two workers each, a broker", d.startCluster},
		{"Order a machine in gru that runs the server", d.runHello},
		{"Call it", d.callHello},
		{"Why did it go there?", d.showOrder},
		{"An order that no worker can fill is refused at once, with reasons", d.refuse},
		{"Kill the worker's daemon; the machine answers all the while", d.killWorker},
		{"The daemon is back and has adopted the machine", d.adopted},
		{"Ask an app that has no machine running", d.fromZero},
		{"No one asks any more: it goes back to zero", d.toZero},
		{"End it all; nothing may be left", d.end},
	} {
		fmt.Printf("\n── %s\n\n", step.title)
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.title, err)
		}
	}
	return nil
}
