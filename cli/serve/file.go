package serve

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
	"github.com/spf13/pflag"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/internal/enroll"
)

// DefaultFile is the usual path of the configuration of a host's servers.
const DefaultFile = "/etc/bourse/bourse.toml"

// maxFile is the maximum size of a configuration in bytes.
const maxFile = 1 << 20

// File is the configuration of a host's servers: a TOML file with a table for each
// server. The settings have the same names as the flags. A setting above the tables
// applies to every server that has such a flag.
type File struct {
	path   string
	text   []byte
	common []setting
	tables map[bourse.Role]*table
	wrong  []error // problems found while the text was parsed
}

// table contains the settings of one server.
type table struct {
	at       int // offset in the file
	settings []setting
}

// setting contains the values that the file assigns to a flag.
type setting struct {
	name   string
	values []string
	at     int // offset in the file
}

// CheckFile reads and checks the configuration at path, and returns its servers. Errors:
// those of [ReadFile] and [File.Servers].
func CheckFile(path string) ([]Server, error) {
	f, err := ReadFile(path)
	if err != nil {
		return nil, err
	}
	return f.Servers()
}

// ReadFile reads a configuration. Errors: not_found; invalid if the file cannot be read
// or is not TOML, or if other users could have changed it.
func ReadFile(path string) (*File, error) {
	text, err := readTrusted(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, bourse.Errorf(bourse.CodeNotFound, "there is no configuration %s", path)
	}
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "read the configuration: %w", err)
	}
	return parseFile(path, text)
}

// readTrusted reads a file that only root and this process's user can change. Settings
// name programs and files that servers use, so whoever can change the file controls the
// servers.
func readTrusted(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // opening a FIFO must not block
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat() // check the open file, because another file may replace it at this path
	if err != nil {
		return nil, err
	}
	owner, known := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file", path)
	case info.Mode().Perm()&0o022 != 0:
		return nil, fmt.Errorf("%s can be written by other users: chmod 644 it", path)
	case known && owner.Uid != 0 && int64(owner.Uid) != int64(os.Geteuid()):
		return nil, fmt.Errorf("%s belongs to another user, who can change it: chown it", path)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("%s is larger than 1 MiB", path)
	}
	return text, err
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
	Role   bourse.Role
	Name   bourse.WorkerID
	Data   string
	Host   *HostConfig // nil unless the server is a worker
	config roleConfig
}

// Servers returns the configurations of the host's servers. If a server's configuration
// has errors, it contains only the settings that could be read. Errors: invalid, with
// everything that prevents a server from starting; most problems begin with their position
// in the file.
func (f *File) Servers() ([]Server, error) {
	var servers []Server
	problems := slices.Clone(f.wrong)
	for _, role := range f.Roles() {
		config := newConfig(role)
		flags := pflag.NewFlagSet(string(role), pflag.ContinueOnError)
		config.bind(flags)
		shared := config.shared()
		shared.File, shared.file = f.path, f
		problems = append(problems, complete(config, flags)...)
		server := config.server()
		server.config = config
		servers = append(servers, server)
	}
	if len(servers) == 0 && len(problems) == 0 {
		problems = append(problems, bourse.Errorf(bourse.CodeInvalid, "%s has no servers: add a table [worker], [broker] or [proxy]", f.path))
	}
	return servers, cli.JoinProblems(distinct(problems))
}

// distinct removes duplicate problems. If several servers share a setting, each of them
// reports the setting's problems.
func distinct(problems []error) []error {
	seen := map[string]bool{}
	return slices.DeleteFunc(problems, func(err error) bool {
		if err == nil || seen[err.Error()] {
			return true
		}
		seen[err.Error()] = true
		return false
	})
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

// parseFile parses the text of a configuration. The TOML library's decoder reports syntax
// errors and duplicate names.
func parseFile(path string, text []byte) (*File, error) {
	f := &File{path: path, text: text, tables: map[bourse.Role]*table{}}
	err := toml.Unmarshal(text, new(map[string]any))
	if wrong, ok := errors.AsType[*toml.DecodeError](err); ok {
		line, column := wrong.Position()
		return nil, bourse.Errorf(bourse.CodeInvalid, "%s:%d:%d: %s", path, line, column, strings.TrimPrefix(wrong.Error(), "toml: "))
	}
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "%s: %w", path, err)
	}
	return f, f.parse()
}

// parse reads the settings from the text, which is valid TOML.
func (f *File) parse() error {
	var p unstable.Parser
	p.Reset(f.text)
	into := &f.common
	for p.NextExpression() {
		e := p.Expression()
		keys := slices.Collect(nodes(e.Key()))
		if len(keys) == 0 {
			continue
		}
		at, name := int(keys[0].Raw.Offset), string(keys[0].Data)
		switch {
		case e.Kind == unstable.Table && len(keys) == 1 && slices.Contains(bourse.ServerRoles(), bourse.Role(name)):
			t := &table{at: at}
			f.tables[bourse.Role(name)], into = t, &t.settings
		case e.Kind == unstable.KeyValue && len(keys) == 1:
			values, ok := texts(e.Value())
			if !ok {
				f.wrong = append(f.wrong, f.problem(at, "%s: use a string, a number, true, false, or a list of them", name))
				continue
			}
			*into = append(*into, setting{name, values, at})
		default:
			f.wrong = append(f.wrong, f.problem(at, "%s is not a table: use [worker], [broker] and [proxy]", bourse.Quoted(name)))
			if e.Kind != unstable.KeyValue {
				into = new([]setting) // the settings of an unknown table are ignored
			}
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

// problem returns an error with the code invalid. Its message begins with the file's
// path and the line and column of the byte offset at.
func (f *File) problem(at int, format string, args ...any) error {
	before := string(f.text[:min(at, len(f.text))])
	line := strings.Count(before, "\n") + 1
	column := len([]rune(before[strings.LastIndexByte(before, '\n')+1:])) + 1
	return bourse.Errorf(bourse.CodeInvalid, "%s:%d:%d: %s", f.path, line, column, fmt.Sprintf(format, args...))
}

// locate adds a position to a problem: the position of the setting that caused it or, if
// the file does not contain the setting, of the server's table. It returns a problem with
// a flag on the command line unchanged.
func (f *File) locate(err error, role bourse.Role, given map[string]bool) error {
	t := f.tables[role]
	if t == nil {
		return err
	}
	at := t.at
	if p, ok := errors.AsType[*flagProblem](err); ok {
		for _, name := range p.flags {
			if given[name] {
				return err
			}
		}
		for _, s := range slices.Concat(f.common, t.settings) { // the table's settings take precedence
			if slices.Contains(p.flags, s.name) {
				at = s.at
			}
		}
	}
	return f.problem(at, "%v", err)
}

// apply sets a server's flags from the file, except those that are set on the command
// line. It returns the problems that it finds in the file.
func (f *File) apply(flags *pflag.FlagSet, c *ServerConfig, role bourse.Role) []error {
	problems := slices.Clone(f.wrong)
	inTable := map[string]bool{}
	if t := f.tables[role]; t != nil {
		for _, s := range t.settings {
			inTable[s.name] = true
			if !settable(flags, s.name) {
				problems = append(problems, f.problem(s.at, "%s is not a setting of a %s: bourse serve %s --help lists them", s.name, role, role))
			} else if !c.setByFlag[s.name] {
				problems = append(problems, f.set(flags, c.rejected, &s))
			}
		}
	}
	for _, s := range f.common {
		switch {
		case !anySettable(s.name):
			problems = append(problems, f.problem(s.at, "%s is not a setting of any server", s.name))
		case !settable(flags, s.name) || c.setByFlag[s.name] || inTable[s.name]:
		default:
			s.values = own(s.name, s.values, role)
			problems = append(problems, f.set(flags, c.rejected, &s))
		}
	}
	return slices.DeleteFunc(problems, func(err error) bool { return err == nil })
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

// own converts the values of a setting that applies to all of a host's servers to the
// values for the server with the given role. It adds the role to the server's name and
// data directory, because a host's servers must not share these.
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

// anySettable reports whether the flag may be set in a configuration file for any kind
// of server.
func anySettable(name string) bool {
	return slices.ContainsFunc(bourse.ServerRoles(), func(role bourse.Role) bool { return settable(flagsOf(role), name) })
}
