package serve

import (
	"reflect"

	"github.com/spf13/pflag"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
)

// roleConfig is the configuration of one kind of server.
type roleConfig interface {
	bind(flags *pflag.FlagSet)             // binds the flags to the config
	complete(flags *pflag.FlagSet) []error // completes the config once the flags are parsed; returns problems with the file
	problems() []error                     // returns all problems with the completed config
	server() Server
	shared() *ServerConfig
	settings() any // returns a copy for comparison, without anything that depends on the host's other servers
}

// newConfig returns an empty config of a server with this role.
func newConfig(role bourse.Role) roleConfig {
	switch role {
	case bourse.RoleBroker:
		return &BrokerConfig{}
	case bourse.RoleWorker:
		return &WorkerConfig{}
	default:
		return &ProxyConfig{}
	}
}

// flagsOf returns the flags of a server with this role, in the order in which they are
// defined.
func flagsOf(role bourse.Role) *pflag.FlagSet {
	flags := pflag.NewFlagSet(string(role), pflag.ContinueOnError)
	flags.SortFlags = false
	newConfig(role).bind(flags)
	return flags
}

// complete completes a config once the flags are parsed, and returns all problems with it.
// A problem with a setting in the configuration file begins with that setting's position.
func complete(c roleConfig, flags *pflag.FlagSet) []error {
	problems := c.complete(flags)
	file := c.shared().file
	if file == nil && len(problems) > 0 {
		return problems // the configuration file cannot be read
	}
	for _, err := range c.problems() {
		if err != nil && file != nil {
			err = file.locate(err, c.server().Role, c.shared().setByFlag)
		}
		problems = append(problems, err)
	}
	return problems
}

// sameSettings reports whether two servers of a host have the same settings.
func sameSettings(a, b roleConfig) bool { return reflect.DeepEqual(a.settings(), b.settings()) }

// flagProblem is a problem with one or more flags.
type flagProblem struct {
	error
	flags []string // flags that may have caused the problem; they determine its position in the configuration file
}

// Unwrap returns the problem without the flags.
func (p *flagProblem) Unwrap() error { return p.error }

// flagErrors attaches to err the flags that caused it. It returns nil if err is nil.
func flagErrors(err error, flags ...string) error {
	if err == nil {
		return nil
	}
	return &flagProblem{err, flags}
}

// flagError returns err as a problem with one flag, or nil if err is nil.
func flagError(flag string, err error) error { return flagErrors(cli.FlagError("--"+flag, err), flag) }

// invalid returns a problem with a flag. The message must name the flag.
func invalid(flag, format string, args ...any) error {
	return flagErrors(bourse.Errorf(bourse.CodeInvalid, format, args...), flag)
}
