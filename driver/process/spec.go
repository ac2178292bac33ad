package process

import (
	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// specOf converts a task to the form that the supervisor expects. It returns CodeInvalid if the
// task has settings that image "host" does not support. It ignores the task's devices, because the
// task can access the host's devices anyway.
func specOf(task driver.Task) (*spec, error) {
	if err := task.ID.Machine.Validate(); err != nil {
		return nil, err
	}
	switch {
	case task.ID.Boot < 1:
		return nil, bourse.Errorf(bourse.CodeInvalid, "boot %d: boot numbers start at 1", task.ID.Boot)
	case len(task.Command) == 0 && len(task.Entrypoint)+len(task.Args) > 0:
		return nil, errOfImage("an entrypoint, or arguments without a command")
	case len(task.Command) == 0 || task.Command[0] == "":
		return nil, bourse.Errorf(bourse.CodeInvalid, "no command")
	case task.TTY:
		return nil, errOfImage("a terminal")
	case task.Root.Runtime != "" || task.Root.ReadOnly || task.Root.Scratch != "" || len(task.Root.Files) > 0:
		return nil, errOfImage("its own root file system")
	case len(task.Stdin) > driver.MaxStdin:
		return nil, bourse.Errorf(bourse.CodeInvalid, "stdin is %d bytes long; the maximum is %d", len(task.Stdin), driver.MaxStdin)
	}
	if _, err := isolationOf(task.Network, task.Mounts); err != nil {
		return nil, err
	}
	user, err := identityOf(task.User)
	if err != nil {
		return nil, err
	}
	return &spec{
		ID: task.ID, Command: bytesOf(task.Command), Env: bytesOf(task.Env), Dir: []byte(task.Dir), User: user,
		Limits: task.Limits, Network: task.Network, Mounts: task.Mounts, Stdin: task.Stdin,
	}, nil
}

func errOfImage(what string) error {
	return bourse.Errorf(bourse.CodeInvalid, "image %s: a command of the host cannot have %s", bourse.ImageHost, what)
}
