package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// web contains clients for a broker and for a proxy, and the workers behind them.
type web struct {
	client  *machinesapi.Client
	workers []*Server
	http    *http.Client // sends every request to the proxy
}

// web starts a broker, workers in the given regions, and a proxy.
func (l *Lab) web(ctx context.Context, regions []string, more ...string) (*web, error) {
	client, workers, err := l.market(ctx, regions, more...)
	if err != nil {
		return nil, err
	}
	proxy, err := l.start(ctx, "proxy", "serve", "proxy", "--http", "127.0.0.1:0=any", "--connections", "1000000",
		"--log-level", "error", "--join", l.servers[0].Ready.Gossip)
	if err != nil {
		return nil, err
	}
	return &web{client, workers, clientTo(proxy.Ready.HTTP[0])}, nil
}

// clientTo returns a client that sends all requests to one address, regardless of the hosts in their URLs.
func clientTo(at string) *http.Client {
	return &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		MaxIdleConnsPerHost: 256, DisableCompression: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", at)
		},
	}}
}

// ask sends a request to the app and reads the response.
func ask(ctx context.Context, c *http.Client) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+string(app)+".localhost/", http.NoBody)
	if err != nil {
		return err
	}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode != http.StatusOK || len(text) != len(greeting)) {
		err = fmt.Errorf("response %s: %s", resp.Status, text)
	}
	return err
}

// serverOrder returns an order for a machine that serves HTTP.
func serverOrder(region string) (machinesapi.CreateMachine, error) {
	self, err := os.Executable()
	c := &bourse.Config{
		Image: bourse.ImageHost, Guest: &bourse.Guest{MemoryMB: 1}, Init: bourse.Init{Exec: []string{self, "-serve"}},
		Restart: &bourse.Restart{Policy: bourse.RestartNo},
	}
	c.Services = []byte(`[{"protocol":"tcp","ports":[{"port":80,"handlers":["http"]}],"autostart":true,"concurrency":{"type":"requests","soft_limit":1000}}]`)
	return machinesapi.CreateMachine{Region: region, Config: c}, err
}

// serve creates a machine in region gru that serves HTTP, and waits until the proxy
// answers. at is the machine's own address.
func (w *web) serve(ctx context.Context) (id bourse.MachineID, at string, err error) {
	in, err := serverOrder("gru")
	if err != nil {
		return "", "", err
	}
	m, err := w.client.Create(ctx, app, in, "")
	if err != nil {
		return "", "", err
	}
	if err := until(ctx, 10*time.Second, "the proxy answers", func() bool { return ask(ctx, w.http) == nil }); err != nil {
		return "", "", err
	}
	started, err := startedOn(ctx, w.workers[0])
	return m.ID, fmt.Sprintf("127.0.0.1:%d", started[m.ID].Port), err
}

// benchProxy measures the rate and the latency of requests that 32 clients send through the proxy to one machine. Each
// of the two figures is divided by the corresponding figure for nginx. The two measurements alternate.
func benchProxy(ctx context.Context, lab *Lab, out Figures) error {
	w, err := lab.web(ctx, []string{"gru"})
	if err != nil {
		return err
	}
	_, at, err := w.serve(ctx)
	if err != nil {
		return err
	}
	nginx, stop, err := startNginx(ctx, lab, at)
	if err != nil {
		return err
	}
	defer stop()
	var rates, p99s [2][]float64
	for range 4 {
		for i, c := range []*http.Client{w.http, nginx} {
			rate, all, err := flood(ctx, 32, 3*time.Second, c)
			if err != nil {
				return err
			}
			rates[i], p99s[i] = append(rates[i], rate), append(p99s[i], all.quantile(0.99))
		}
	}
	out["proxy_rps"], out["floor_nginx_rps"] = median(rates[0]), median(rates[1])
	out["proxy_rps_ratio"] = median(rates[0]) / median(rates[1])
	out["proxy_p99_ms"], out["floor_nginx_p99_ms"] = median(p99s[0]), median(p99s[1])
	out["proxy_p99_ratio"] = median(p99s[0]) / median(p99s[1])
	return nil
}

// flood sends requests from several clients until the time limit has passed. It returns the number of
// requests per second and their durations.
func flood(ctx context.Context, clients int, long time.Duration, c *http.Client) (float64, samples, error) {
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		all   samples
		first error
	)
	begin := time.Now()
	for range clients {
		wg.Go(func() {
			var mine samples
			var err error
			for err == nil && time.Since(begin) < long {
				err = mine.measure(func() error { return ask(ctx, c) })
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, mine...)
			if first == nil {
				first = err
			}
		})
	}
	wg.Wait()
	return float64(len(all)) / time.Since(begin).Seconds(), all, first
}

// startNginx starts nginx in front of an address, with a typical configuration, and returns
// a client that sends requests to it.
func startNginx(ctx context.Context, lab *Lab, upstream string) (*http.Client, func(), error) {
	at, err := freeAddress(ctx)
	if err != nil {
		return nil, nil, err
	}
	dir := filepath.Join(lab.dir, "nginx")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, nil, err
	}
	conf := filepath.Join(dir, "nginx.conf")
	text := fmt.Sprintf(`worker_processes auto; pid %[1]s/pid; error_log %[1]s/error.log; daemon off;
events { worker_connections 4096; }
http {
  access_log off;
  client_body_temp_path %[1]s/b; proxy_temp_path %[1]s/p; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
  upstream machine { server %[2]s; keepalive 64; }
  server {
    listen %[3]s;
    location / { proxy_pass http://machine; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $host;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; }
  }
}
`, dir, upstream, at)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		return nil, nil, err
	}
	cmd := exec.CommandContext(ctx, "nginx", "-c", conf, "-p", dir, "-e", filepath.Join(dir, "error.log"))
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	stop := func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // the process may have exited
		_ = cmd.Wait()
	}
	client := clientTo(at)
	if err := until(ctx, 10*time.Second, "nginx answers", func() bool { return ask(ctx, client) == nil }); err != nil {
		stop()
		return nil, nil, err
	}
	return client, stop, nil
}

// benchCold measures how long a request takes if the app has no running machine. It subtracts the time that the same
// machine takes to start listening when it is started through the API.
func benchCold(ctx context.Context, lab *Lab, out Figures) error {
	w, err := lab.web(ctx, []string{"gru"})
	if err != nil {
		return err
	}
	id, at, err := w.serve(ctx)
	if err != nil {
		return err
	}
	stop := func() error {
		if err := w.client.Stop(ctx, app, id, machinesapi.StopMachine{Signal: "SIGKILL"}, ""); err != nil {
			return err
		}
		_, err := w.client.Wait(ctx, app, id, machinesapi.WaitMachine{States: []string{"stopped"}})
		time.Sleep(20 * time.Millisecond) // wait until the proxy knows that the machine has stopped
		return err
	}
	var cold, own samples
	for range 100 {
		if err := stop(); err != nil {
			return err
		}
		if err := cold.measure(func() error { return ask(ctx, w.http) }); err != nil {
			return err
		}
		if err := stop(); err != nil {
			return err
		}
		if err := own.measure(func() error {
			_, err := w.client.Start(ctx, app, id, "")
			for err == nil && !accepts(at) {
				err = ctx.Err()
			}
			return err
		}); err != nil {
			return err
		}
	}
	out["cold_start_ms"], out["floor_start_ms"] = cold.median(), own.median()
	out["cold_start_added_ms"] = cold.median() - own.median()
	return nil
}

// lose simulates the loss of a worker's host by killing the worker's daemon, supervisor and
// machines at the same time.
func lose(ctx context.Context, w *Server) error {
	started, err := startedOn(ctx, w)
	if err != nil {
		return err
	}
	supervisor, err := w.supervisor()
	if err != nil {
		return err
	}
	_ = syscall.Kill(supervisor, syscall.SIGKILL)
	for _, boot := range started {
		_ = syscall.Kill(boot.PID, syscall.SIGKILL)
	}
	w.kill()
	return nil
}

// benchFailover runs a machine on each of two workers, kills one of the workers while clients send
// 200 requests per second, and measures the longest time without a response.
func benchFailover(ctx context.Context, lab *Lab, out Figures) error {
	w, err := lab.web(ctx, []string{"gru", "gru"})
	if err != nil {
		return err
	}
	for range 2 { // the two machines are placed on different workers, because an app's machines are spread
		if _, _, err := w.serve(ctx); err != nil {
			return err
		}
	}
	for _, x := range w.workers {
		list, err := startedOn(ctx, x)
		if err != nil {
			return err
		}
		if len(list) != 1 {
			return fmt.Errorf("worker %s: got %d started machines, want 1", x.Name, len(list))
		}
	}
	var (
		wg      sync.WaitGroup
		mu      sync.Mutex
		last    = time.Now()
		longest time.Duration
		failed  int
	)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	begin, lost := time.Now(), false
	for time.Since(begin) < 8*time.Second {
		<-tick.C
		wg.Go(func() {
			err := ask(ctx, w.http)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed++
				return
			}
			longest, last = max(longest, time.Since(last)), time.Now()
		})
		if !lost && time.Since(begin) > 2*time.Second {
			lost = true
			if err := lose(ctx, w.workers[0]); err != nil {
				return err
			}
		}
	}
	wg.Wait()
	out["failover_gap_ms"], out["failover_failed"] = ms(longest), float64(failed)
	return nil
}

// benchStandby kills the worker of an app's only machine and measures the time until the standby answers. In this
// benchmark, a worker starts the standby 2 s after the loss. By default, it waits 10 s to give the lost host time to
// return.
func benchStandby(ctx context.Context, lab *Lab, out Figures) error {
	w, err := lab.web(ctx, []string{"gru", "mad"}, "--standby-after", "2s")
	if err != nil {
		return err
	}
	id, _, err := w.serve(ctx)
	if err != nil {
		return err
	}
	in, err := serverOrder("mad")
	if err != nil {
		return err
	}
	in.Config.Standbys = []bourse.MachineID{id}
	in.SkipLaunch = true
	if _, err := w.client.Create(ctx, app, in, ""); err != nil {
		return err
	}
	breathe(ctx)
	if err := lose(ctx, w.workers[0]); err != nil {
		return err
	}
	begin := time.Now()
	if err := until(ctx, 60*time.Second, "the standby answers", func() bool { return ask(ctx, w.http) == nil }); err != nil {
		return err
	}
	out["standby_s"] = time.Since(begin).Seconds()
	return nil
}
