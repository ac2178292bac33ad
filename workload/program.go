package workload

import (
	"cmp"
	"maps"
	"slices"

	"github.com/bourse-dev/bourse"
)

// Program describes a machine's program.
type Program struct {
	bourse.Init
	Env  map[string]string // environment variables, without those that the worker adds to describe the machine
	From map[string]string // further variables whose values describe the machine; maps each name to one of fieldRefs

	Secrets          []Secret // secrets for additional variables
	IgnoreAppSecrets bool     // do not pass the app's other secrets to the program
}

// Secret assigns the value of one of the app's secrets to an environment variable.
type Secret struct {
	EnvVar string `json:"env_var"`
	Name   string `json:"name"` // name of the secret; "" means the variable's name
}

// SecretVars returns the variables that a program receives from its app's secrets. It returns
// CodeInvalid if the program requests a secret that the app does not have.
func (p *Program) SecretVars(secrets map[string]string) (map[string]string, error) {
	if !p.IgnoreAppSecrets && len(p.Secrets) == 0 {
		return secrets, nil
	}
	out := map[string]string{}
	if !p.IgnoreAppSecrets {
		maps.Copy(out, secrets)
	}
	for _, s := range p.Secrets {
		name := cmp.Or(s.Name, s.EnvVar)
		value, ok := secrets[name]
		if !ok {
			return nil, invalid("config.processes.secrets: the app has no secret %s", bourse.Quoted(name))
		}
		out[s.EnvVar] = value
	}
	return out, nil
}

// fieldRefs returns the valid values of env_from.field_ref.
func fieldRefs() []string {
	return []string{"id", "version", "app_name", "private_ip", "region", "image"}
}

// ProgramOf returns a config's program. If config.processes is invalid, it returns the program that config.init
// describes; [Review] reports the error.
func ProgramOf(c *bourse.Config) Program {
	p, err := readProgram(c)
	if err != nil {
		return Program{Init: c.Init, Env: c.Env}
	}
	return p
}

// readProgram returns a config's program. It returns CodeInvalid if config.processes has more
// than one item, or if its item is invalid.
func readProgram(c *bourse.Config) (Program, error) {
	p := Program{Init: c.Init, Env: c.Env}
	list, err := processesIn(&c.StoredConfig)
	switch {
	case err != nil || len(list) == 0:
		return p, err
	case len(list) > 1:
		return p, invalid("invalid config.processes: %d items, but a machine runs one program: create a machine for each", len(list))
	}
	if err := p.add(&list[0]); err != nil {
		return p, err
	}
	if c.ImageKind() != bourse.RegistryImage && len(p.Command()) == 0 {
		return p, invalid("invalid config.processes: image %s needs a command (exec, or entrypoint and cmd)", c.Image)
	}
	return p, nil
}

// add overrides the values of config.init with those of a process. The process's exec replaces
// the whole command, its entrypoint replaces the entrypoint and cmd, and its cmd replaces the
// cmd.
func (p *Program) add(one *processConfig) error {
	switch {
	case len(one.Exec) > 0:
		p.Exec = one.Exec
	case len(one.Entrypoint) > 0:
		p.Exec, p.Entrypoint, p.Cmd = nil, one.Entrypoint, one.Cmd
	case len(one.Cmd) > 0:
		p.Exec, p.Cmd = nil, one.Cmd
	}
	p.User = cmp.Or(one.User, p.User)
	p.Secrets, p.IgnoreAppSecrets = one.Secrets, one.IgnoreAppSecrets
	if len(one.Env) > 0 {
		p.Env = maps.Clone(p.Env)
		if p.Env == nil {
			p.Env = map[string]string{}
		}
		maps.Copy(p.Env, one.Env)
	}
	for _, from := range one.EnvFrom {
		if !slices.Contains(fieldRefs(), from.FieldRef) {
			return invalid("invalid config.processes.env_from.field_ref %s: use id, version, app_name, private_ip, region or image", bourse.Quoted(from.FieldRef))
		}
		if p.From == nil {
			p.From = map[string]string{}
		}
		p.From[from.EnvVar] = from.FieldRef
	}
	return p.validate()
}

// validate checks that the program complies with the rules for init and env.
func (p *Program) validate() error {
	env := maps.Clone(p.Env)
	if env == nil {
		env = map[string]string{}
	}
	for name := range p.From {
		env[name] = ""
	}
	for _, s := range p.Secrets {
		env[s.EnvVar] = ""
	}
	c := bourse.Config{Image: bourse.ImageHost, Init: p.Init, Env: env}
	if len(c.Init.Command()) == 0 {
		c.Init.Exec = []string{"/"} // placeholder, because the command is in the image
	}
	return c.Normalize()
}
