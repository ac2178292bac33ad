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

// web is a market with a proxy before it.
type web struct {
	client  *machinesapi.Client
	workers []*Server
	proxy   *Server
	at      string // of the proxy, host:port
	http    *http.Client
}

// site is the host name of the machines' app.
const site = string(app) + ".localhost"

// web starts workers and a broker as market does, and a proxy.
func (l *Lab) web(ctx context.Context, regions ...string) (*web, error) {
	client, workers, err := l.market(ctx, regions...)
	if err != nil {
		return nil, err
	}
	proxy, err := l.start(ctx, "proxy", "serve", "proxy", "--http", "127.0.0.1:0=any", "--connections", "1000000",
		"--log-level", "warn", "--join", l.servers[0].Ready.Gossip)
	if err != nil {
		return nil, err
	}
	return &web{client, workers, proxy, proxy.Ready.HTTP[0], clientTo(proxy.Ready.HTTP[0])}, nil
}

// clientTo makes a client whose requests for any host go to one address.
func clientTo(at string) *http.Client {
	return &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		MaxIdleConnsPerHost: 256, DisableCompression: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", at)
		},
	}}
}

// ask sends one request and reads the reply.
func ask(ctx context.Context, c *http.Client) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+site+"/", http.NoBody)
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
		err = fmt.Errorf("the reply is %s: %s", resp.Status, text)
	}
	return err
}

// served is an order for a machine that serves HTTP.
func served(region string) (machinesapi.CreateMachine, error) {
	self, err := os.Executable()
	c := &bourse.Config{
		Image: bourse.ImageHost, Guest: &bourse.Guest{MemoryMB: 1}, Init: bourse.Init{Exec: []string{self, "-answer"}},
		Restart: &bourse.Restart{Policy: bourse.RestartNo},
	}
	c.Services = []byte(`[{"protocol":"tcp","ports":[{"port":80,"handlers":["http"]}],"autostart":true,"concurrency":{"type":"requests","soft_limit":1000}}]`)
	return machinesapi.CreateMachine{Region: region, Config: c}, err
}

// serve creates a machine in gru that serves HTTP, and waits until the proxy answers.
func (w *web) serve(ctx context.Context) (machinesapi.Created, error) {
	in, err := served("gru")
	if err != nil {
		return machinesapi.Created{}, err
	}
	m, err := w.client.Create(ctx, app, in, "")
	if err != nil {
		return m, err
	}
	return m, until(ctx, 10*time.Second, "the proxy answers", func() bool { return ask(ctx, w.http) == nil })
}

// benchProxy: requests to one machine through the proxy, beside nginx before the same
// one, in turn.
func benchProxy(ctx context.Context, lab *Lab, out Figures) error {
	w, err := lab.web(ctx, "gru")
	if err != nil {
		return err
	}
	m, err := w.serve(ctx)
	if err != nil {
		return err
	}
	ports, err := processPorts(ctx, w.workers[0])
	if err != nil {
		return err
	}
	nginx, stop, err := startNginx(ctx, lab, ports[m.ID])
	if err != nil {
		return err
	}
	defer stop()
	const clients, rounds = 32, 4
	var rates, p99s [2][]float64
	for range rounds {
		for i, c := range []*http.Client{w.http, nginx} {
			rate, all, err := flood(ctx, clients, 3*time.Second, c)
			if err != nil {
				return err
			}
			rates[i], p99s[i] = append(rates[i], rate), append(p99s[i], ms(all.quantile(0.99)))
		}
	}
	out["proxy_rps"], out["floor_nginx_rps"] = median(rates[0]), median(rates[1])
	out["proxy_rps_ratio"] = median(rates[0]) / median(rates[1])
	out["proxy_p99_ms"], out["floor_nginx_p99_ms"] = median(p99s[0]), median(p99s[1])
	out["proxy_p99_ratio"] = median(p99s[0]) / median(p99s[1])
	return nil
}

// flood has clients ask for so long, and tells how many requests a second were
// answered.
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

// startNginx starts nginx before a port, as people set it up, and returns a client
// to it.
func startNginx(ctx context.Context, lab *Lab, port int) (*http.Client, func(), error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	at := l.Addr().String()
	_ = l.Close()
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
  upstream machine { server 127.0.0.1:%[2]d; keepalive 64; }
  server {
    listen %[3]s;
    location / { proxy_pass http://machine; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $host;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; }
  }
}
`, dir, port, at)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		return nil, nil, err
	}
	cmd := exec.CommandContext(ctx, "nginx", "-c", conf, "-p", dir, "-e", filepath.Join(dir, "error.log"))
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	stop := func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // ended already: fine
		_ = cmd.Wait()
	}
	client := clientTo(at)
	if err := until(ctx, 10*time.Second, "nginx answers", func() bool { return ask(ctx, client) == nil }); err != nil {
		stop()
		return nil, nil, err
	}
	return client, stop, nil
}

// benchCold: a request for an app at zero until its reply, over the start of the
// same machine through the API until it listens.
func benchCold(ctx context.Context, lab *Lab, out Figures) error {
	w, err := lab.web(ctx, "gru")
	if err != nil {
		return err
	}
	m, err := w.serve(ctx)
	if err != nil {
		return err
	}
	ports, err := processPorts(ctx, w.workers[0])
	if err != nil {
		return err
	}
	at := fmt.Sprintf("127.0.0.1:%d", ports[m.ID])
	stop := func() error {
		if err := w.client.Stop(ctx, app, m.ID, machinesapi.StopMachine{Signal: "SIGKILL"}, ""); err != nil {
			return err
		}
		_, err := w.client.Wait(ctx, app, m.ID, machinesapi.WaitMachine{States: []string{"stopped"}})
		time.Sleep(20 * time.Millisecond) // so that the proxy has heard
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
			if _, err := w.client.Start(ctx, app, m.ID, ""); err != nil {
				return err
			}
			for !accepts(at) {
				if ctx.Err() != nil {
					return ctx.Err()
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	out["cold_start_ms"], out["floor_start_ms"] = ms(cold.quantile(0.5)), ms(own.quantile(0.5))
	out["cold_start_added_ms"] = ms(cold.quantile(0.5) - own.quantile(0.5))
	out["cold_start_added_p99"] = ms(cold.quantile(0.99) - own.quantile(0.99))
	return nil
}
