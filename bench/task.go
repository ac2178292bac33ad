package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"time"

	client "github.com/nats-io/nats.go"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fabric/direct"
	"github.com/bourse-dev/bourse/fabric/nats"
	"github.com/bourse-dev/bourse/internal/tuning"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/market"
)

const (
	taskName    = "increment"
	taskCluster = "bench"
	taskClients = 16
	echoSubject = "bench.echo"
)

// payload is both the task's input and the message that the baseline echoes.
var payload = json.RawMessage(`{"N":41}`)

// benchTask measures durable tasks sent to warm programs over NATS, with 1 client and with 16
// clients. This process acts as the broker. The ratios compare the tasks with a baseline: echo
// requests through the same NATS server.
func benchTask(ctx context.Context, lab *Lab, out Figures) error {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	tuning.RuntimeOfServer() // this process acts as a broker and collects garbage like one
	server, err := lab.start(ctx, "nats", "serve", "nats", "--listen", "127.0.0.1:0")
	if err != nil {
		return err
	}
	url := "nats://" + server.Ready.API
	workers, err := warmWorkers(ctx, lab, url)
	if err != nil {
		return err
	}
	link, err := nats.Open(ctx, nats.Config{URLs: []string{url}, Cluster: taskCluster})
	if err != nil {
		return err
	}
	defer link.Close()
	exchange, err := openExchange(link, workers)
	if err != nil {
		return err
	}
	stop, err := startEcho(url)
	if err != nil {
		return err
	}
	defer stop()
	conns := make(chan *client.Conn, taskClients) // each caller of echo has its own connection
	for range taskClients {
		nc, err := client.Connect(url)
		if err != nil {
			return err
		}
		defer nc.Close()
		conns <- nc
	}
	echo := func() error {
		nc := <-conns
		defer func() { conns <- nc }()
		_, err := nc.Request(echoSubject, payload, 5*time.Second)
		return err
	}
	task := func() error { return runTask(ctx, exchange) }

	var tasks, echoes samples
	for range 500 {
		breathe(ctx)
		if err := errors.Join(echoes.measure(echo), tasks.measure(task)); err != nil {
			return err
		}
	}
	var taskRates, echoRates []float64
	for range 3 {
		rate, err := together(taskClients, 20_000, func(int) error { return echo() })
		if err != nil {
			return err
		}
		echoRates = append(echoRates, rate)
		if rate, err = together(taskClients, 4000, func(int) (err error) {
			for err = task(); bourse.CodeOf(err) == bourse.CodeInsufficient; { // retry if both workers are full
				err = task()
			}
			return err
		}); err != nil {
			return err
		}
		taskRates = append(taskRates, rate)
	}
	out["task_p50_ms"], out["floor_nats_ms"] = tasks.median(), echoes.median()
	out["task_p50_ratio"] = tasks.median() / echoes.median()
	out["task_c16_rps"], out["floor_nats_c16_rps"] = median(taskRates), median(echoRates)
	out["task_c16_ratio"] = median(taskRates) / median(echoRates)
	return nil
}

// warmWorkers starts a broker and two workers with ten slots each, which communicate over NATS. It
// then starts a warm machine on each worker.
func warmWorkers(ctx context.Context, lab *Lab, url string) ([]machinesapi.Worker, error) {
	program := filepath.Join(lab.dir, "increment")
	if text, err := exec.CommandContext(ctx, "go", "build", "-o", program, "./examples/increment").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build examples/increment: %w: %s", err, text)
	}
	reach := []string{"--cluster", taskCluster, "--nats", url}
	broker, err := lab.broker(ctx, "broker", reach...)
	if err != nil {
		return nil, err
	}
	api := clientOf(broker)
	const workers = 2
	for i := range workers {
		name := "gru-" + strconv.Itoa(i)
		ports := fmt.Sprintf("%d-%d", 21000+1000*i, 21999+1000*i)
		if _, err := lab.worker(ctx, name, "gru", append(reach, "--resource", "slots=10", "--label", "host="+name, "--ports", ports)...); err != nil {
			return nil, err
		}
	}
	if err := awaitQuotes(ctx, api, workers); err != nil {
		return nil, err
	}
	for i := range workers {
		if _, err := api.Create(ctx, app, machinesapi.CreateMachine{Region: "gru", Config: &bourse.Config{
			Image: bourse.ImageHost, Guest: &bourse.Guest{MemoryMB: 64}, Init: bourse.Init{Exec: []string{program, "-frames"}},
			Task:         &bourse.TaskConfig{Name: taskName, Concurrency: 10, Protocol: bourse.TaskFrames},
			Requirements: bourse.Requirements{"host": {Label: "gru-" + strconv.Itoa(i)}},
		}}, ""); err != nil {
			return nil, err
		}
	}
	for range 200 { // enough tasks that both workers have handled some
		if _, err := api.RunTask(ctx, app, machinesapi.RunTask{
			Task: taskName, Payload: payload, Region: "gru", Requirements: bourse.Requirements{"slots": {Count: 1}},
		}, ""); err != nil {
			return nil, err
		}
	}
	return api.Workers(ctx)
}

// openExchange connects this process to the workers in the same way as a broker.
func openExchange(link *nats.Link, workers []machinesapi.Worker) (*market.Exchange, error) {
	var members directory
	for _, w := range workers {
		members = append(members, bourse.Member{ID: w.ID, Role: bourse.RoleWorker, Region: w.Region, Address: w.Address})
	}
	proof, err := proofOf(taskCluster)
	if err != nil {
		return nil, err
	}
	dial := func(ctx context.Context, _, address string) (net.Conn, error) { return link.Dial(ctx, address) }
	f := &nats.Fabric{Caller: direct.NewOver(dial, nil, proof), Link: link, WorkerCount: func(bourse.Region) int { return len(members) }}
	return market.New(market.Config{Directory: members, Trader: fabric.Trader{Fabric: f}}), nil
}

// directory is a fixed list of workers in region gru.
type directory []bourse.Member

func (directory) Regions() []bourse.Region { return []bourse.Region{"gru"} }

func (d directory) Candidates(bourse.Region) []bourse.Member {
	return append([]bourse.Member(nil), d...)
}

func (d directory) All() ([]bourse.Member, []bourse.Absence) { return d, nil }

// runTask places an order for one task, as a broker does.
func runTask(ctx context.Context, exchange *market.Exchange) error {
	fill, _, err := exchange.Place(ctx, bourse.Order{
		ID: bourse.NewOrderID(), App: bourse.DefaultApp(bourse.App{}), Regions: []bourse.Choice{{"gru"}},
		Config: bourse.Config{Requirements: bourse.Requirements{"slots": {Count: 1}}},
		Task:   &bourse.TaskOrder{Name: taskName, Payload: payload, Timeout: bourse.Duration(10 * time.Second)},
	})
	if err == nil && (fill.Task == nil || string(fill.Task.Answer) != "42\n") {
		err = fmt.Errorf("the task ended with %+v", fill.Task)
	}
	return err
}

// echo answers each request with the request's own payload until standard input is closed. It runs
// in a separate process.
func echo(url string) error {
	nc, err := client.Connect(url)
	if err != nil {
		return err
	}
	defer nc.Close()
	if _, err = nc.Subscribe(echoSubject, func(m *client.Msg) { _ = m.Respond(m.Data) }); err != nil {
		return err
	}
	if err := nc.Flush(); err != nil {
		return err
	}
	fmt.Println("ready")
	_, _ = os.Stdin.Read(make([]byte, 1))
	return nil
}

// startEcho runs echo in a separate process.
func startEcho(url string) (stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := exec.Command(self, "-echo", url) //nolint:noctx // it exits when its standard input is closed
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	_, err = out.Read(make([]byte, 16))
	return func() { _ = in.Close(); _ = c.Wait() }, err
}
