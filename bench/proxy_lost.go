package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/bourse-dev/bourse"
)

// lose ends a worker as the loss of its host does: the daemon, its supervisor and all
// its machines, at once.
func lose(ctx context.Context, w *Server) error {
	pids, err := processes(ctx, w)
	if err != nil {
		return err
	}
	var all []int
	for _, pid := range pids {
		all = append(all, pid)
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	for _, e := range entries {
		cmdline, err := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		words := strings.Split(string(cmdline), "\x00")
		if pid, bad := strconv.Atoi(e.Name()); err == nil && bad == nil && len(words) > 2 && words[1] == "supervisor" && strings.Contains(string(cmdline), "/"+w.Name+"/") {
			all = append(all, pid)
		}
	}
	for _, pid := range all {
		_ = syscall.Kill(pid, syscall.SIGKILL) // ended already: fine
	}
	w.kill()
	return nil
}

// benchFailover: two workers with a machine each, 200 requests a second, and one is
// lost: the longest time in which no request was answered.
func benchFailover(ctx context.Context, lab *Lab, out Figures) error {
	w, err := lab.web(ctx, "gru", "gru")
	if err != nil {
		return err
	}
	for range 2 { // the second goes elsewhere: machines of an app are spread
		if _, err := w.serve(ctx); err != nil {
			return err
		}
	}
	for _, x := range w.workers {
		if list, err := processes(ctx, x); err != nil || len(list) != 1 {
			return fmt.Errorf("%s has %d machines, want 1 (%w)", x.Name, len(list), err)
		}
	}
	var (
		wg      sync.WaitGroup
		mu      sync.Mutex
		last    = time.Now()
		longest time.Duration
		failed  int
	)
	probing, stop := context.WithTimeout(ctx, 8*time.Second)
	defer stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	begin, lost := time.Now(), false
	for probing.Err() == nil {
		select {
		case <-probing.Done():
		case <-tick.C:
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
		}
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

// benchStandby: a machine that is alone is lost with its worker, until its spare
// answers in its place. Spares wait for two seconds here, and for ten unless they are told
// otherwise: the host may be back.
func benchStandby(ctx context.Context, lab *Lab, out Figures) error {
	lab.more = []string{"--standby-after", "2s"}
	w, err := lab.web(ctx, "gru", "mad")
	if err != nil {
		return err
	}
	m, err := w.serve(ctx)
	if err != nil {
		return err
	}
	in, err := served("mad")
	if err != nil {
		return err
	}
	if in.Config.Standbys, err = json.Marshal([]bourse.MachineID{m.ID}); err != nil {
		return err
	}
	in.SkipLaunch = true
	if _, err := w.client.Create(ctx, app, in, ""); err != nil {
		return err
	}
	breathe(ctx)
	if err := lose(ctx, w.workers[0]); err != nil {
		return err
	}
	begin := time.Now()
	if err := until(ctx, 60*time.Second, "the spare answers", func() bool { return ask(ctx, w.http) == nil }); err != nil {
		return err
	}
	out["standby_s"] = time.Since(begin).Seconds()
	return nil
}

// benchWebSockets: memory of the proxy for each of many idle connections that have
// changed protocols.
func benchWebSockets(ctx context.Context, lab *Lab, out Figures) error {
	w, err := lab.web(ctx, "gru")
	if err != nil {
		return err
	}
	if _, err := w.serve(ctx); err != nil {
		return err
	}
	const idle = 9000
	before, err := anonymousOf(w.proxy.Ready.PID)
	if err != nil {
		return err
	}
	conns := make([]net.Conn, idle)
	defer func() {
		for _, c := range conns {
			if c != nil {
				_ = c.Close()
			}
		}
	}()
	if _, err := together(16, idle, func(i int) (err error) { conns[i], err = upgrade(ctx, w.at); return err }); err != nil {
		return err
	}
	time.Sleep(2 * time.Second) // let what opening needed be given back
	after, err := anonymousOf(w.proxy.Ready.PID)
	if err != nil {
		return err
	}
	out["websocket_kib"] = float64(after-before) / idle / (1 << 10)
	return nil
}

// upgrade opens a connection through the proxy that echoes, and tries it once.
func upgrade(ctx context.Context, at string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", at)
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n", site); err != nil {
		return c, err
	}
	r := bufio.NewReaderSize(c, 4096)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return c, err
	}
	defer resp.Body.Close() // it has none
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return c, errors.New(resp.Status)
	}
	if _, err := c.Write([]byte("x")); err != nil {
		return c, err
	}
	_, err = r.ReadByte()
	return c, err
}
