package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// benchUpdate: how long a host process does not answer while it is updated, over
// what the same program needs to stop and to start by itself.
func benchUpdate(ctx context.Context, lab *Lab, out Figures) error {
	client, _, err := lab.market(ctx, "gru")
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	config := func(n int) *bourse.Config {
		return &bourse.Config{
			Image: bourse.ImageHost, Guest: &bourse.Guest{MemoryMB: 1}, Init: bourse.Init{Exec: []string{self, "-answer"}},
			Env: map[string]string{"ROUND": fmt.Sprint(n)},
		}
	}
	m, err := client.Create(ctx, app, machinesapi.CreateMachine{Region: "gru", Config: config(0)}, "")
	if err != nil {
		return err
	}
	list, err := processPorts(ctx, lab.servers[1])
	if err != nil {
		return err
	}
	at := fmt.Sprintf("127.0.0.1:%d", list[m.ID])
	if err := until(ctx, 10*time.Second, "the program listens", func() bool { return accepts(at) }); err != nil {
		return err
	}
	var gap, own samples
	for n := range 40 {
		longest := make(chan time.Duration, 1)
		probing, stop := context.WithCancel(ctx)
		go func() { longest <- longestGap(probing, at) }()
		breathe(ctx)
		_, err := client.Update(ctx, app, m.ID, machinesapi.UpdateMachine{Config: config(n + 1)}, "")
		if err == nil {
			err = until(ctx, 10*time.Second, "the new version listens", func() bool { return accepts(at) })
		}
		breathe(ctx)
		stop()
		gap = append(gap, <-longest)
		if err != nil {
			return err
		}
		alone, err := byItself(ctx, self)
		if err != nil {
			return err
		}
		own = append(own, alone)
	}
	out["update_gap_ms"], out["floor_restart_ms"] = ms(gap.quantile(0.5)), ms(own.quantile(0.5))
	out["update_gap_ratio"] = out["update_gap_ms"] / out["floor_restart_ms"]
	return nil
}

// longestGap connects again and again until ctx ends, and returns the longest time
// between two that were accepted.
func longestGap(ctx context.Context, at string) (longest time.Duration) {
	last := time.Now()
	for ctx.Err() == nil {
		if accepts(at) {
			now := time.Now()
			longest, last = max(longest, now.Sub(last)), now
		}
		time.Sleep(200 * time.Microsecond)
	}
	return longest
}

func accepts(at string) bool {
	c, err := (&net.Dialer{Timeout: time.Second}).DialContext(context.Background(), "tcp", at)
	if err == nil {
		_ = c.Close()
	}
	return err == nil
}

// byItself returns how long the program needs from the signal that ends it until
// another one listens at its port.
func byItself(ctx context.Context, self string) (time.Duration, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	at := l.Addr().String()
	_, port, _ := net.SplitHostPort(at)
	_ = l.Close()
	begin := func() (*exec.Cmd, error) {
		cmd := exec.CommandContext(ctx, self, "-answer")
		cmd.Env = append(os.Environ(), "PORT="+port)
		return cmd, errors.Join(cmd.Start(), until(ctx, 10*time.Second, "the program listens by itself", func() bool { return accepts(at) }))
	}
	cmd, err := begin()
	if err != nil {
		return 0, err
	}
	from := time.Now()
	_ = cmd.Process.Signal(os.Interrupt)
	_ = cmd.Wait() // by the signal
	if cmd, err = begin(); err != nil {
		return 0, err
	}
	took := time.Since(from)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	return took, nil
}
