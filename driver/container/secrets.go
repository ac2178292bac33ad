package container

import (
	"slices"

	"github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/typeurl/v2"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/bourse-dev/bourse/driver"
)

// storeSecrets stores a task's secrets in memory, and adds mounts for the secret files to s. It
// returns runtime options that make the shim pass the secret variables to the program, or nil if
// there are none. If the runtime does not support this, storeSecrets instead adds the variables to
// the environment in s.
func (l *launch) storeSecrets(s *specs.Spec, runtime string) (typeurl.Any, error) {
	env := l.order.Secrets
	hidden := len(l.cfg.Runc) > 0 && runtime == DefaultRuntime
	if !hidden {
		s.Process.Env, env = envOf(s.Process.Env, env), nil
	}
	files := secretFiles(l.order)
	if len(env)+len(files) == 0 {
		return nil, nil
	}
	paths, err := storeSecrets(l.task.container, env, files)
	if err != nil {
		return nil, err
	}
	for i, f := range files { // read-only, because the tmpfs has no size limit per machine
		s.Mounts = append(s.Mounts, specs.Mount{
			Destination: f.Path, Type: "bind", Source: paths[i], Options: []string{"bind", "rprivate", "nodev", "nosuid", "ro"},
		})
	}
	if len(env) == 0 {
		return nil, nil
	}
	script, err := Wrapper(l.layout.dir, l.cfg.Runc)
	if err != nil {
		return nil, err
	}
	return typeurl.MarshalAny(&options.Options{BinaryName: script})
}

func secretFiles(task driver.Task) []driver.File {
	return slices.DeleteFunc(slices.Clone(task.Root.Files), func(f driver.File) bool { return !f.Secret })
}

// secretTasks returns this driver's tasks that have secrets.
func (l layout) secretTasks() []driver.TaskID {
	var out []driver.TaskID
	for _, name := range containersWithSecrets() {
		if id, ok := l.taskOf(name); ok {
			out = append(out, id)
		}
	}
	return out
}
