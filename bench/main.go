// Command bench measures the latency, throughput and memory use that users of Bourse notice. It
// starts real bin/bourse processes on loopback. In the same run, it measures baselines: floors,
// such as the time of one synced write, and peers, such as nginx. Hosts are shared and noisy, so
// only the ratios can be compared between runs. It prints the figures as one flat JSON object, and
// writes the object to the file given by -out.
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
)

// Figures holds a run's results by name.
type Figures map[string]float64

// benchmarks lists the benchmarks in the order in which they run.
var benchmarks = []struct {
	name string
	run  func(context.Context, *Lab, Figures) error
}{
	{"fsm", benchFSM},
	{"ready", benchReady},
	{"memory", benchMemory},
	{"place", benchPlace},
	{"throughput", benchThroughput},
	{"refuse", benchRefuse},
	{"api", benchAPI},
	{"deploy", benchDeploy},
	{"proxy", benchProxy},
	{"cold", benchCold},
	{"failover", benchFailover},
	{"standby", benchStandby},
	{"recover", benchRecover},
	{"lost", benchLost},
	{"container", benchContainer},
	{"vm", benchVM},
	{"task", benchTask},
	{"visible", benchVisible},
}

// goals maps a figure's name to its goal, which is printed next to the figure. "<" is an upper
// limit and ">" a lower limit. Floors and most absolute figures do not have goals.
var goals = map[string]struct {
	sign  string
	limit float64
}{
	"place_p50_ratio":       {"<", 2.2},
	"place_rps_ratio":       {">", 0.5},
	"refuse_p99_ratio":      {"<", 4},
	"fsm_c16_gain":          {">", 5},
	"task_p50_ratio":        {"<", 5},
	"task_c16_ratio":        {">", 0.3},
	"api_get_ratio":         {"<", 3},
	"api_list_ratio":        {"<", 8},
	"recover_2000_s":        {"<", 1},
	"lost_worker_s":         {"<", 5},
	"view_p99_ms":           {"<", 1000},
	"view_unseen":           {"<", 0},
	"anon_idle_mib":         {"<", 25},
	"anon_per_machine_kib":  {"<", 1024},
	"ready_s":               {"<", 0.3},
	"container_start_ratio": {"<", 1.15},
	"vm_boot_ratio":         {"<", 1.3},
	"vm_suspend_ratio":      {"<", 0.2},
	"vm_resume_ratio":       {"<", 0.2},
	"vm_overhead_mib":       {"<", 60},
	"proxy_rps_ratio":       {">", 0.7},
	"proxy_p99_ratio":       {"<", 1.5},
	"cold_start_added_ms":   {"<", 2},
	"failover_gap_ms":       {"<", 1000},
	"failover_failed":       {"<", 0},
	"standby_s":             {"<", 5},
	"deploy_ratio":          {"<", 1.2},
}

func main() {
	out := flag.String("out", "", "write the figures to this `file` as JSON")
	binary := flag.String("binary", "bin/bourse", "the `program` to measure")
	only := flag.String("only", "", "comma-separated `list` of benchmarks to run (default all)")
	echoAt := flag.String("echo", "", "answer requests at the NATS server with this `URL` until standard input is closed (internal)")
	serving := flag.Bool("serve", false, "serve HTTP at $PORT, as a machine's program (internal)")
	flag.Parse()
	var err error
	switch {
	case *serving: // without a signal handler, so that an interrupt ends the process immediately
		err = serve()
	case *echoAt != "":
		err = echo(*echoAt)
	default:
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		defer stop()
		err = run(ctx, *binary, *only, *out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, binary, only, out string) error {
	figures := Figures{}
	if onlyV1() {
		fmt.Fprintln(os.Stderr, "this host only has cgroup v1: machines run without limits")
	}
	for _, b := range benchmarks {
		if only != "" && !slices.Contains(strings.Split(only, ","), b.name) {
			continue
		}
		begin := time.Now()
		lab, err := newLab(binary)
		if err != nil {
			return err
		}
		err = b.run(ctx, lab, figures)
		lab.close()
		if err != nil {
			show(figures) // the figures measured so far are valid
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

// show prints the figures and their goals.
func show(figures Figures) {
	for _, name := range slices.Sorted(maps.Keys(figures)) {
		value, verdict := figures[name], ""
		if g, ok := goals[name]; ok {
			verdict = fmt.Sprintf("missed (goal %s= %g)", g.sign, g.limit)
			if value == g.limit || (value < g.limit) == (g.sign == "<") {
				verdict = fmt.Sprintf("ok (goal %s= %g)", g.sign, g.limit)
			}
		}
		fmt.Fprintf(os.Stderr, "  %-24s %10.3f  %s\n", name, value, verdict)
	}
}
