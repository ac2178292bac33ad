package container

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse"
)

// prepare adds the container's secret variables to the specification of the container or exec that
// runc will create, and returns the arguments for runc. The first element of args is the directory
// that contains all containers' secrets; the others are the original arguments for runc.
func prepare(args []string) ([]string, error) {
	if len(args) < 3 {
		return nil, bourse.Errorf(bourse.CodeInvalid, "no arguments for runc")
	}
	base, args := args[0], slices.Clone(args[1:])
	container := args[len(args)-1]
	if filepath.Base(container) != container {
		return nil, bourse.Errorf(bourse.CodeInvalid, "invalid container name %s", bourse.Quoted(container))
	}
	dir := filepath.Join(base, container)
	text, err := os.ReadFile(filepath.Join(dir, variables))
	if err != nil {
		return nil, err
	}
	var env []string
	if err := json.Unmarshal(text, &env); err != nil {
		return nil, fmt.Errorf("read %s of %s: %w", variables, container, err)
	}
	if i := slices.Index(args, "--process"); i >= 0 && i+1 < len(args) {
		text, err := os.ReadFile(args[i+1])
		if err != nil {
			return nil, err
		}
		if text, err = withEnv(text, env); err != nil {
			return nil, err
		}
		args[i+1], err = inMemory(text)
		return args, err
	}
	i := slices.Index(args, "--bundle")
	if i < 0 || i+1 >= len(args) {
		return nil, bourse.Errorf(bourse.CodeInvalid, "runc's arguments contain no bundle")
	}
	return args, redirect(filepath.Join(args[i+1], "config.json"), filepath.Join(dir, "config.json"), env)
}

// redirect copies the specification in the file config to target, with env added, and replaces
// config with a link to target.
func redirect(config, target string, env []string) error {
	text, err := os.ReadFile(config)
	if err != nil {
		return err
	}
	var spec map[string]json.RawMessage
	if err := json.Unmarshal(text, &spec); err != nil {
		return fmt.Errorf("read %s: %w", config, err)
	}
	if spec["process"], err = withEnv(spec["process"], env); err != nil {
		return err
	}
	if text, err = json.Marshal(spec); err != nil {
		return err
	}
	if err := writeNew(target, text); err != nil {
		return err
	}
	link := config + ".link"
	if err := os.Remove(link); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return errors.Join(os.Symlink(target, link), os.Rename(link, config))
}

// withEnv adds variables to a process specification in JSON, overriding existing variables with the
// same name.
func withEnv(process []byte, more []string) ([]byte, error) {
	var p map[string]json.RawMessage
	var env []string
	if err := json.Unmarshal(process, &p); err != nil {
		return nil, fmt.Errorf("read the process: %w", err)
	}
	if raw, ok := p["env"]; ok {
		if err := json.Unmarshal(raw, &env); err != nil {
			return nil, fmt.Errorf("read the environment: %w", err)
		}
	}
	var err error
	if p["env"], err = json.Marshal(mergeEnv(env, more)); err != nil {
		return nil, err
	}
	return json.Marshal(p)
}

// mergeEnv returns the variables in env and extra. Those in extra take precedence.
func mergeEnv(env, extra []string) []string {
	out := slices.Clone(env)
	for _, entry := range extra {
		name, _, _ := strings.Cut(entry, "=")
		out = slices.DeleteFunc(out, func(e string) bool { return strings.HasPrefix(e, name+"=") })
	}
	return append(out, extra...)
}
