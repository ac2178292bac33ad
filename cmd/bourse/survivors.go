package main

import (
	"context"
	"fmt"
	"os"

	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/serve"
	"github.com/bourse-dev/bourse/driver/container"
	"github.com/bourse-dev/bourse/driver/logs"
	"github.com/bourse-dev/bourse/driver/process"
	"github.com/bourse-dev/bourse/internal/tuning"
)

// The processes that outlive a worker's daemon are this program, too, also
// when its file has been replaced since. Their drivers add the directory.
func supervisorCommand() []string { return []string{selfPath(), supervisorWord} }
func keeperCommand() []string     { return []string{selfPath(), keeperWord} }
func leashedCommand() []string    { return []string{selfPath(), leashedWord} }

const (
	supervisorWord = "supervisor" // of host processes
	keeperWord     = "keeper"     // of containers' output
	leashedWord    = "leashed"    // a supervisor that does not outlive us
	runcWord       = "runc"       // runc, for a container that has secrets
)

// runcCommand is for a script, which is not this process.
func runcCommand() []string {
	path, err := os.Executable()
	if err != nil {
		path = os.Args[0]
	}
	return []string{path, runcWord}
}

// survivor returns what this process is to do if it was started by one of the
// commands above. It is looked at before anything else: they must stay small.
func survivor(args []string) func(dir string) int {
	if len(args) > 3 && args[1] == runcWord {
		return func(string) int { return outlived(container.BecomeRunc(args[2:])) }
	}
	if len(args) != 3 {
		return nil
	}
	switch args[1] {
	case supervisorWord:
		return func(dir string) int {
			tuning.ProtectFromOOM(tuning.OOMCompanion)
			return outlived(process.Supervise(context.Background(), process.SupervisorConfig{Dir: dir, Log: serve.LogConfig{}.Logger(os.Stderr)}))
		}
	case leashedWord:
		return leashed
	case keeperWord:
		return func(dir string) int {
			tuning.ProtectFromOOM(tuning.OOMCompanion)
			return outlived(logs.Keep(context.Background(), logs.KeepConfig{Dir: dir, Log: serve.LogConfig{}.Logger(os.Stderr)}))
		}
	}
	return nil
}

func outlived(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "bourse:", err)
	return cli.ExitCode(err)
}
