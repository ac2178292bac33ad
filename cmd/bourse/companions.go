package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/serve"
	"github.com/bourse-dev/bourse/driver/container"
	"github.com/bourse-dev/bourse/driver/logs"
	"github.com/bourse-dev/bourse/driver/process"
	"github.com/bourse-dev/bourse/internal/tuning"
	"github.com/bourse-dev/bourse/network/mesh"
)

// supervisorCommand, keeperCommand, tunnelCommand and leashedCommand return the commands of processes that a driver or
// the mesh starts. The processes run this program, even if its file has been replaced since this process started. The
// driver or the mesh appends the directory that the process uses.
func supervisorCommand() []string { return []string{selfPath(), supervisorWord} }
func keeperCommand() []string     { return []string{selfPath(), keeperWord} }
func tunnelCommand() []string     { return []string{selfPath(), tunnelWord} }
func leashedCommand() []string    { return []string{selfPath(), leashedWord} }

const (
	supervisorWord = "supervisor" // supervisor of host processes
	keeperWord     = "keeper"     // keeper of containers' output
	tunnelWord     = "tunnel"     // runs wireguard-go for the mesh
	leashedWord    = "leashed"    // supervisor that exits when this process does
	runcWord       = "runc"       // runs runc for a container that has secrets
)

// runcCommand returns the command line that the container driver writes to a script. It
// contains the path of the program's file, because /proc/self would refer to the script's
// interpreter.
func runcCommand() []string {
	path, err := os.Executable()
	if err != nil {
		path = os.Args[0]
	}
	return []string{path, runcWord}
}

// companionMain returns the main function of a supervisor, keeper, tunnel or runc process. It returns nil if args are
// not the arguments of such a process. main calls it before anything else, because these processes must use little
// memory.
func companionMain(args []string) func(dir string) int {
	if len(args) > 3 && args[1] == runcWord {
		return func(string) int { return exitStatus(container.ExecRunc(args[2:])) }
	}
	if len(args) != 3 {
		return nil
	}
	switch args[1] {
	case supervisorWord:
		return func(dir string) int {
			tuning.ProtectFromOOM(tuning.OOMCompanion)
			return exitStatus(process.Supervise(context.Background(), process.SupervisorConfig{Dir: dir, Log: serve.LogConfig{}.Logger(os.Stderr)}))
		}
	case leashedWord:
		return leashedSupervisor
	case keeperWord:
		return func(dir string) int {
			tuning.ProtectFromOOM(tuning.OOMCompanion)
			return exitStatus(logs.Keep(context.Background(), logs.KeepConfig{Dir: dir, Log: serve.LogConfig{}.Logger(os.Stderr)}))
		}
	case tunnelWord:
		return func(dir string) int {
			tuning.ProtectFromOOM(tuning.OOMCompanion)
			return exitStatus(mesh.Serve(context.Background(), dir, serve.LogConfig{}.Logger(os.Stderr)))
		}
	}
	return nil
}

func exitStatus(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "bourse:", err)
	return cli.ExitCode(err)
}

// superviseTasks runs tasks with a new process driver, which stores its files in a
// temporary directory.
func superviseTasks(ctx context.Context, tasks []serve.Task, to serve.Print) (failed []string, err error) {
	here, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("find the working directory: %w", err)
	}
	dir, err := os.MkdirTemp("", "bourse-supervise-")
	if err != nil {
		return nil, fmt.Errorf("create a directory for the tasks' output: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	d := process.New(process.Config{
		Dir: dir, Supervisor: leashedCommand(), Limits: process.LimitsOff, Log: serve.LogConfig{}.Logger(os.Stderr),
	})
	defer func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), destroyTimeout)
		defer cancel()
		err = errors.Join(err, d.Shutdown(last))
	}()
	if _, err := d.Recover(ctx); err != nil {
		return nil, err
	}
	return serve.Run(ctx, serve.Config{Runner: d, Tasks: tasks, Env: os.Environ(), Dir: here, Print: to})
}

// leashInterval is the interval at which a leashed supervisor checks whether its parent
// still exists.
const leashInterval = 200 * time.Millisecond

// leashedSupervisor is the main function of the supervisor that superviseTasks uses. If its
// parent is killed, it ends the tasks, removes their directory and exits.
func leashedSupervisor(dir string) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	parent := os.Getppid()
	go func() { // runs until the process exits
		for os.Getppid() == parent {
			time.Sleep(leashInterval)
		}
		cancel()
	}()
	err := process.Supervise(ctx, process.SupervisorConfig{Dir: dir, Log: serve.LogConfig{}.Logger(os.Stderr)})
	if os.Getppid() != parent {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return exitStatus(err)
}
