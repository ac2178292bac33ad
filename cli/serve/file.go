package serve

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
	"github.com/spf13/pflag"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/internal/enroll"
)

// DefaultFile is the usual path of the configuration of a host's servers.
const DefaultFile = "/etc/bourse/bourse.toml"

// File is the configuration of a host's servers: a TOML file with a table for each
// server. The settings have the same names as the flags. A setting above the tables
// applies to every server that has such a flag.
type File struct {
	path   string
	text   []byte
	common []setting
	tables map[bourse.Role][]setting
}

// setting is one flag in a file, with its values.
type setting struct {
	name   string
	values []string
	at     int // offset in the file
}

// ReadFile reads a configuration. Errors: not_found; invalid, with the position in the file.
func ReadFile(path string) (*File, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, bourse.Errorf(bourse.CodeNotFound, "there is no configuration %s", path)
	}
	f := &File{path: path, tables: map[bourse.Role][]setting{}}
	if err == nil {
		f.text, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "read the configuration: %w", err)
	}
	if info.Mode().Perm()&0o022 != 0 { // the settings name programs that run as the servers' user
		return nil, bourse.Errorf(bourse.CodeInvalid, "%s can be written by other users: chmod 644 it", path)
	}
	return f, f.parse()
}

// Roles returns the roles of the host's servers. Brokers come first, because other servers
// join them.
func (f *File) Roles() []bourse.Role {
	return slices.DeleteFunc([]bourse.Role{bourse.RoleBroker, bourse.RoleWorker, bourse.RoleProxy}, func(role bourse.Role) bool {
		_, ok := f.tables[role]
		return !ok
	})
}

// Server is the configuration of one of a host's servers.
type Server struct {
	*ServerConfig
	Role bourse.Role
	Name bourse.WorkerID
	Data string
	Host *HostConfig // nil unless the server is a worker
}

// Servers returns the configurations of the host's servers. A configuration with errors
// contains the settings that could be read. Errors: invalid, with everything that
// prevents a server from starting.
func (f *File) Servers() ([]Server, error) {
	var servers []Server
	var problems []error
	for _, role := range f.Roles() {
		config := map[bourse.Role]interface {
			bind(flags *pflag.FlagSet)
			settle(flags *pflag.FlagSet) error
			Validate() error
			server() Server
		}{bourse.RoleBroker: &BrokerConfig{}, bourse.RoleWorker: &WorkerConfig{}, bourse.RoleProxy: &ProxyConfig{}}[role]
		flags := pflag.NewFlagSet(string(role), pflag.ContinueOnError)
		config.bind(flags)
		err := flags.Set("config", f.path)
		if err == nil {
			err = config.settle(flags)
		}
		if err == nil {
			err = config.Validate()
		}
		problems = append(problems, err)
		servers = append(servers, config.server())
	}
	return servers, cli.JoinProblems(problems)
}

func (c *BrokerConfig) server() Server {
	return Server{ServerConfig: &c.ServerConfig, Role: bourse.RoleBroker, Name: c.Name, Data: c.Data}
}

func (c *WorkerConfig) server() Server {
	return Server{ServerConfig: &c.ServerConfig, Role: bourse.RoleWorker, Name: c.Name, Data: c.Data, Host: &c.Host}
}

func (c *ProxyConfig) server() Server {
	return Server{ServerConfig: &c.ServerConfig, Role: bourse.RoleProxy, Name: c.Name, Data: c.Data}
}

// parse reads the settings from the text. Invalid TOML and duplicate names are found by
// the library's decoder.
func (f *File) parse() error {
	err := toml.Unmarshal(f.text, new(map[string]any))
	if wrong, ok := errors.AsType[*toml.DecodeError](err); ok {
		line, column := wrong.Position()
		return bourse.Errorf(bourse.CodeInvalid, "%s:%d:%d: %s", f.path, line, column, strings.TrimPrefix(wrong.Error(), "toml: "))
	}
	if err != nil {
		return bourse.Errorf(bourse.CodeInvalid, "%s: %w", f.path, err)
	}
	var p unstable.Parser
	p.Reset(f.text)
	into := bourse.Role("")
	for p.NextExpression() {
		e := p.Expression()
		keys := slices.Collect(nodes(e.Key()))
		if len(keys) == 0 {
			continue
		}
		at, name := int(keys[0].Raw.Offset), string(keys[0].Data)
		switch {
		case e.Kind == unstable.Table && len(keys) == 1 && slices.Contains(bourse.ServerRoles(), bourse.Role(name)):
			into = bourse.Role(name)
			f.tables[into] = nil
		case e.Kind == unstable.KeyValue && len(keys) == 1:
			values, ok := texts(e.Value())
			if !ok {
				return f.problem(at, "%s: use a text, a number, true, false, or a list of them", name)
			}
			s := setting{name, values, at}
			if into == "" {
				f.common = append(f.common, s)
			} else {
				f.tables[into] = append(f.tables[into], s)
			}
		default:
			return f.problem(at, "%s is not a table: use [worker], [broker] and [proxy]", bourse.Quoted(name))
		}
	}
	return p.Error()
}

func nodes(it unstable.Iterator) func(func(*unstable.Node) bool) {
	return func(yield func(*unstable.Node) bool) {
		for it.Next() {
			if !yield(it.Node()) {
				return
			}
		}
	}
}

// texts returns a value, or each element of a list, as text that a flag accepts. It
// returns false for any other kind of value.
func texts(v *unstable.Node) ([]string, bool) {
	switch v.Kind { //nolint:exhaustive // no flag has a table or a date
	case unstable.String, unstable.Integer, unstable.Float, unstable.Bool:
		return []string{string(v.Data)}, true
	case unstable.Array:
		out := []string{}
		for item := range nodes(v.Children()) {
			one, ok := texts(item)
			if !ok || item.Kind == unstable.Array {
				return nil, false
			}
			out = append(out, one...)
		}
		return out, true
	}
	return nil, false
}

// problem returns an invalid error that begins with a position in the file. at is an
// offset.
func (f *File) problem(at int, format string, args ...any) error {
	before := string(f.text[:min(at, len(f.text))])
	line := strings.Count(before, "\n") + 1
	column := len([]rune(before[strings.LastIndexByte(before, '\n')+1:])) + 1
	return bourse.Errorf(bourse.CodeInvalid, "%s:%d:%d: %s", f.path, line, column, fmt.Sprintf(format, args...))
}

// apply sets a server's flags, except those given on the command line. rejected
// contains the errors of flags whose values could not be parsed.
func (f *File) apply(flags *pflag.FlagSet, rejected map[string]error, role bourse.Role) error {
	given := map[string]bool{}
	flags.Visit(func(flag *pflag.Flag) { given[flag.Name] = true })
	var problems []error
	inTable := map[string]bool{}
	for _, s := range f.tables[role] {
		inTable[s.name] = true
		if !settable(flags, s.name) {
			problems = append(problems, f.problem(s.at, "%s is not a setting of a %s: bourse serve %s --help lists them", s.name, role, role))
		} else if !given[s.name] {
			problems = append(problems, f.set(flags, rejected, &s))
		}
	}
	for _, s := range f.common {
		switch {
		case !anySettable(s.name):
			problems = append(problems, f.problem(s.at, "%s is not a setting of any server", s.name))
		case !settable(flags, s.name) || given[s.name] || inTable[s.name]:
		default:
			s.values = own(s.name, s.values, role)
			problems = append(problems, f.set(flags, rejected, &s))
		}
	}
	return errors.Join(problems...)
}

func (f *File) set(flags *pflag.FlagSet, rejected map[string]error, s *setting) error {
	for _, value := range s.values {
		err := flags.Set(s.name, value)
		if err == nil {
			err = rejected[s.name]
			delete(rejected, s.name)
		}
		if err != nil {
			return f.problem(s.at, "%v", err)
		}
	}
	return nil
}

// own returns one server's values for a setting above the tables. It extends names and
// directories by the role, because they must differ between the servers of a host.
func own(name string, values []string, role bourse.Role) []string {
	if len(values) != 1 {
		return values
	}
	switch name {
	case "name":
		return []string{string(enroll.ServerName(bourse.WorkerID(values[0]), role))}
	case "data":
		return []string{filepath.Join(values[0], string(role))}
	}
	return values
}

// settable reports whether a flag may be set in a configuration file.
func settable(flags *pflag.FlagSet, name string) bool {
	flag := flags.Lookup(name)
	return flag != nil && !flag.Hidden && name != "config" && name != "help"
}

// anySettable reports whether any kind of server has this flag, and it may be set in a
// configuration file.
func anySettable(name string) bool {
	for _, bind := range []func(*pflag.FlagSet){new(WorkerConfig).bind, new(BrokerConfig).bind, new(ProxyConfig).bind} {
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		if bind(flags); settable(flags, name) {
			return true
		}
	}
	return false
}
