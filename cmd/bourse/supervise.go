package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/bourse-dev/bourse/cli/serve"
	"github.com/bourse-dev/bourse/driver/process"
)

// superviseTasks runs tasks through a driver of their own, in a directory that
// is gone afterwards.
func superviseTasks(ctx context.Context, tasks []serve.Task, to serve.Print) (failed []string, err error) {
	here, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("find the working directory: %w", err)
	}
	dir, err := os.MkdirTemp("", "bourse-supervise-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for the tasks' output: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	d := process.New(process.Config{
		Dir: dir, Supervisor: leashedCommand(), Limits: process.LimitsOff, Log: serve.LogConfig{}.Logger(os.Stderr),
	})
	defer func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), destroyPatience)
		defer cancel()
		err = errors.Join(err, d.Shutdown(last))
	}()
	if _, err := d.Recover(ctx); err != nil {
		return nil, err
	}
	return serve.Run(ctx, serve.Config{Runner: d, Tasks: tasks, Env: os.Environ(), Dir: here, Print: to})
}

// leashLook is how often a leashed supervisor checks that its parent is
// there.
const leashLook = 200 * time.Millisecond

// leashed is the supervisor of such tasks: it ends, with them and their
// directory, when the process that has started it is killed.
func leashed(dir string) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	parent := os.Getppid()
	go func() { // ends with the process
		for os.Getppid() == parent {
			time.Sleep(leashLook)
		}
		cancel()
	}()
	err := process.Supervise(ctx, process.SupervisorConfig{Dir: dir, Log: serve.LogConfig{}.Logger(os.Stderr)})
	if os.Getppid() != parent {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return outlived(err)
}
