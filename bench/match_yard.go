package main

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fabric/direct"
	"github.com/bourse-dev/bourse/fabric/nats"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/market"
)

const taskName = "increment"

// taskYard is a market of two workers with ten slots each, and a warm program
// on each that takes ten payloads at once.
type taskYard struct {
	ctx      context.Context //nolint:containedctx // the benchmark's
	lab      *Lab
	cluster  string
	nats     string // "": reached directly
	api      *machinesapi.Client
	brokers  []*Server
	workers  []*Server
	exchange *market.Exchange // of this process, in a broker's place
}

func buildIncrement(ctx context.Context, lab *Lab) (string, error) {
	program := filepath.Join(lab.dir, "increment")
	out, err := exec.CommandContext(ctx, "go", "build", "-o", program, "./examples/increment").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the example: %w: %s", err, out)
	}
	return program, nil
}

// taskMarket starts the servers, over a NATS server of their own or directly.
func taskMarket(h *harness, lab *Lab, program string, overNATS bool) (*taskYard, error) {
	y := &taskYard{ctx: h.ctx, lab: lab, cluster: "bench-d"}
	prefix, reach := "d", []string{}
	if overNATS {
		s, err := lab.startNATS(h.ctx)
		if err != nil {
			return nil, err
		}
		y.nats = "nats://" + s.Ready.API
		y.cluster, prefix, reach = "bench-n", "n", []string{"--nats", y.nats}
	}
	b, err := lab.start(h.ctx, prefix+"-broker", append([]string{"serve", "broker", "--cluster", y.cluster, "--listen", "127.0.0.1:0", "--log-level", "error"}, reach...)...)
	if err != nil {
		return nil, err
	}
	y.brokers, y.api = append(y.brokers, b), clientOf(b)
	if !overNATS {
		reach = []string{"--join", b.Ready.Gossip}
	}
	for i := range 2 {
		name := prefix + "-gru-" + strconv.Itoa(i)
		w, err := lab.start(h.ctx, name, append([]string{
			"serve", "worker", "--cluster", y.cluster, "--region", "gru", "--name", name, "--data", filepath.Join(lab.dir, name),
			"--cpus", "40", "--memory", "4TiB", "--disk", "1TiB", "--resource", "slots=10", "--label", "host=" + name, "--ephemeral", "--log-level", "error",
			"--ports", fmt.Sprintf("%d-%d", 21000+1000*len(lab.servers), 21999+1000*len(lab.servers)),
		}, reach...)...)
		if err != nil {
			return nil, err
		}
		y.workers = append(y.workers, w)
	}
	if err := y.warmUp(program); err != nil {
		return nil, err
	}
	return y, y.openExchange(h)
}

// startNATS starts a NATS server.
func (l *Lab) startNATS(ctx context.Context) (*Server, error) {
	return l.start(ctx, "nats", "serve", "nats", "--listen", "127.0.0.1:0")
}

// warmUp runs the program on each worker, and waits until it answers.
func (y *taskYard) warmUp(program string) error {
	command := []string{program}
	if y.lab.protocol == bourse.TaskFrames {
		command = append(command, "-frames")
	}
	err := takeOrders(y.ctx, y.api, len(y.workers))
	for _, w := range y.workers {
		if err == nil {
			_, err = y.api.Create(y.ctx, app, machinesapi.CreateMachine{Region: "gru", Config: &bourse.Config{
				Image: bourse.ImageHost, Guest: &bourse.Guest{MemoryMB: 64}, Init: bourse.Init{Exec: command},
				Task: &bourse.TaskConfig{Name: taskName, Concurrency: 10, Protocol: y.lab.protocol}, Requirements: bourse.Requirements{"host": {Label: w.Name}},
			}}, "")
		}
	}
	for range 200 { // both are known, and warm
		if err == nil {
			err = y.call()
		}
	}
	return err
}

// openExchange puts this process into a broker's place: with a connection of
// its own to the workers, however those are reached.
func (y *taskYard) openExchange(h *harness) error {
	known, err := y.api.Workers(y.ctx)
	if err != nil {
		return err
	}
	var members []bourse.Member
	for _, w := range known {
		members = append(members, bourse.Member{ID: w.ID, Role: bourse.RoleWorker, Region: w.Region, Address: w.Address})
	}
	proof, err := proofOf(y.cluster)
	if err != nil {
		return err
	}
	var way fabric.Fabric = direct.NewOver(direct.TCP, nil, proof)
	if y.nats != "" {
		link, err := nats.Open(y.ctx, nats.Config{URLs: []string{y.nats}, Cluster: y.cluster})
		if err != nil {
			return err
		}
		h.Cleanup(link.Close)
		dial := func(ctx context.Context, _, address string) (net.Conn, error) { return link.Dial(ctx, address) }
		way = &nats.Fabric{Caller: direct.NewOver(dial, nil, proof), Link: link, Population: func(bourse.Region) int { return len(members) }}
	}
	y.exchange = market.New(market.Config{Directory: directory(members), Trader: fabric.Trader{Fabric: way}})
	return nil
}

// directory is a fixed list of workers in gru.
type directory []bourse.Member

func (directory) Regions() []bourse.Region { return []bourse.Region{"gru"} }

func (d directory) Candidates(bourse.Region) []bourse.Member {
	return append([]bourse.Member(nil), d...)
}

func (d directory) All() ([]bourse.Member, []bourse.Absence) { return d, nil }

// match has a task done as a broker does.
func (y *taskYard) match() error {
	fill, _, err := y.exchange.Place(y.ctx, bourse.Order{
		ID: bourse.NewOrderID(), App: bourse.DefaultApp(bourse.App{}), Regions: []bourse.Choice{{"gru"}},
		Config: bourse.Config{Requirements: bourse.Requirements{"slots": {Count: 1}}},
		Task:   &bourse.TaskOrder{Name: taskName, Payload: payload, Timeout: bourse.Duration(10 * time.Second)},
	})
	if err == nil && (fill.Task == nil || string(fill.Task.Answer) != "42\n") {
		err = fmt.Errorf("the task ended with %+v", fill.Task)
	}
	return err
}

// call has a task done through the API.
func (y *taskYard) call() error {
	r, err := y.api.RunTask(y.ctx, app, machinesapi.RunTask{
		Task: taskName, Payload: payload, Region: "gru", Requirements: bourse.Requirements{"slots": {Count: 1}},
	}, "")
	if err == nil && !r.OK {
		err = fmt.Errorf("the task ended with %+v", r)
	}
	return err
}
