// Command bench measures what users of Bourse feel, each figure beside the
// floor it is divided by, in one run: machines are shared and noisy, ratios
// are not. It drives real processes of bin/bourse on loopback, prints one flat
// JSON object and writes it to -out.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/query"
)

// Figures are the run's results by name.
type Figures map[string]float64

type benchmark struct {
	name string
	run  func(context.Context, *Lab, Figures) error
}

func main() {
	out := flag.String("out", "", "write the figures to this file, as JSON")
	binary := flag.String("binary", "bin/bourse", "the program to measure")
	only := flag.String("only", "", "comma list of benchmarks to run; default all")
	protocol := flag.String("task-protocol", string(bourse.TaskFrames), "what warm programs speak: frames, or http to compare")
	echoAt := flag.String("echo", "", "be the responder of a floor, at the NATS server with this `URL`, until standard input ends")
	answering := flag.Bool("answer", false, "be the program of a machine: serve HTTP at $PORT")
	flag.Parse()
	if *answering {
		fmt.Fprintln(os.Stderr, "bench:", answer())
		os.Exit(1)
	}
	if *echoAt != "" {
		if err := echo(*echoAt); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *binary, *only, *out, bourse.TaskProtocol(*protocol)); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, binary, only, out string, protocol bourse.TaskProtocol) error {
	if err := query.BoundMemory(); err != nil { // as servers do, before the first view is opened
		return err
	}
	figures := Figures{}
	if onlyV1() {
		fmt.Fprintln(os.Stderr, "this host has only cgroup v1: machines are placed without limits")
	}
	for _, b := range []benchmark{
		{"rank", benchRank},
		{"fsm", benchFSM},
		{"ready", benchReady},
		{"memory", benchMemory},
		{"place", benchPlace},
		{"throughput", benchThroughput},
		{"overload", benchOverload},
		{"refuse", benchRefuse},
		{"api", benchAPI},
		{"update", benchUpdate},
		{"deploy", benchDeploy},
		{"same", benchDeploySame},
		{"proxy", benchProxy},
		{"cold", benchCold},
		{"failover", benchFailover},
		{"standby", benchStandby},
		{"websockets", benchWebSockets},
		{"recover", benchRecover},
		{"lost", benchLost},
		{"container", benchContainer},
		{"image", benchImage},
		{"volume", benchVolume},
		{"match", benchMatch},
		{"slots", benchSlots},
		{"visible", benchVisible},
		{"apply", benchApply},
		{"query", benchQuery},
		{"join", benchJoin},
		{"thousand", benchThousand},
		{"tiers", benchTiers},
	} {
		if only != "" && !slices.Contains(strings.Split(only, ","), b.name) {
			continue
		}
		begin := time.Now()
		if err := inLab(ctx, binary, protocol, figures, b); err != nil {
			show(figures) // those before it are good
			return fmt.Errorf("%s: %w", b.name, err)
		}
		fmt.Fprintf(os.Stderr, "%-12s %s\n", b.name, time.Since(begin).Round(time.Millisecond))
	}
	show(figures)
	text, err := json.MarshalIndent(figures, "", "  ")
	if err != nil {
		return err
	}
	fmt.Println(string(text))
	if out == "" {
		return nil
	}
	return os.WriteFile(out, append(text, '\n'), 0o644)
}

// show prints figures for people.
func show(figures Figures) {
	for _, name := range slices.Sorted(maps.Keys(figures)) {
		fmt.Fprintf(os.Stderr, "  %-28s %10.3f  %s\n", name, figures[name], verdict(name, figures[name]))
	}
}

func inLab(ctx context.Context, binary string, protocol bourse.TaskProtocol, figures Figures, b benchmark) error {
	lab, err := newLab(binary)
	if err != nil {
		return err
	}
	defer lab.close()
	lab.protocol = protocol
	return b.run(ctx, lab, figures)
}
