package place

import (
	"cmp"
	"encoding/json"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/workload"
)

// imageFlags are the flags for a machine's services, storage and files. Flags that also
// exist in flyctl have the same names.
type imageFlags struct {
	ports, checks, files, literals []string
	when                           startFlags
	rootSize                       string
	readOnly, tty                  bool
	runtime                        string
	emulation                      bool
}

func (f *imageFlags) bind(flags *pflag.FlagSet) {
	flags.StringArrayVarP(&f.ports, "port", "p", nil, "`port` that proxies serve, such as 80, 443:8080 (external:internal) or 443:8080/tcp:tls:http; may be repeated")
	f.when.bind(flags)
	flags.StringArrayVar(&f.checks, "check", nil, "health check, `[NAME=]TYPE:PORT[/PATH]`, such as http:8080/up or tcp:5432; the default port is $PORT; may be repeated")
	flags.StringArrayVar(&f.files, "file-local", nil, "local file to copy into the machine, `/PATH=FILE`; may be repeated")
	flags.StringArrayVar(&f.literals, "file-literal", nil, "text to write to a file in the machine, `/PATH=TEXT`; may be repeated")
	flags.StringVar(&f.rootSize, "rootfs-size", "", "maximum `size` of the data that the machine writes to its root file system, such as 2GiB")
	flags.BoolVar(&f.readOnly, "read-only", false, "make the root file system read-only")
	flags.BoolVar(&f.tty, "tty", false, "give the program a terminal")
	flags.StringVar(&f.runtime, "vm-runtime", "", "`name` of the runtime: vm for a virtual machine, or containerd's name, such as io.containerd.runsc.v1 (default: the worker's)")
	flags.BoolVar(&f.emulation, "allow-emulation", false, "allow a worker without KVM to run a virtual machine, which takes about ten times as long")
}

// apply sets the fields of a config from the flags.
func (f *imageFlags) apply(c *bourse.Config) error {
	services, err := parseServices(f.ports)
	if err != nil {
		return cli.FlagError("--port", err)
	}
	if err := f.when.apply(services); err != nil {
		return err
	}
	if len(services) > 0 {
		if c.Services, err = json.Marshal(services); err != nil {
			return err
		}
	}
	if err := addChecks(c, f.checks); err != nil {
		return cli.FlagError("--check", err)
	}
	if err := f.addFiles(c); err != nil {
		return err
	}
	if f.rootSize != "" || f.readOnly {
		c.Rootfs = &bourse.Rootfs{ReadOnly: f.readOnly}
	}
	if f.rootSize != "" {
		size, err := cli.ParseMiB(f.rootSize)
		if err == nil && size%1024 != 0 {
			err = bourse.Errorf(bourse.CodeInvalid, "%s: use whole GiB", bourse.Quoted(f.rootSize))
		}
		if err != nil {
			return cli.FlagError("--rootfs-size", err)
		}
		c.Rootfs.SizeGB = int64(size) / 1024
	}
	c.Init.TTY, c.Runtime, c.AllowEmulation = f.tty, f.runtime, f.emulation
	return nil
}

func (f *imageFlags) addFiles(c *bourse.Config) error {
	for _, s := range f.files {
		where, name, err := cli.ParsePair(s)
		if err != nil {
			return cli.FlagError("--file-local", err)
		}
		text, mode, err := readLocal(name)
		if err != nil {
			return cli.FlagError("--file-local", err)
		}
		c.Files = append(c.Files, bourse.File{GuestPath: where, RawValue: text, Mode: mode})
	}
	for _, s := range f.literals {
		where, text, err := cli.ParsePair(s)
		if err != nil {
			return cli.FlagError("--file-literal", err)
		}
		c.Files = append(c.Files, bourse.File{GuestPath: where, RawValue: []byte(text)})
	}
	return nil
}

// maxLocalFile limits how much of a local file is read, in bytes. It is larger than the
// limit for a config's files, so that validation rejects files that are too large.
const maxLocalFile = 2 << 20

func readLocal(name string) ([]byte, uint32, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, 0, bourse.Errorf(bourse.CodeInvalid, "%w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, 0, bourse.Errorf(bourse.CodeInvalid, "%w", err)
	}
	text, err := io.ReadAll(io.LimitReader(file, maxLocalFile))
	if err != nil {
		return nil, 0, bourse.Errorf(bourse.CodeInvalid, "%w", err)
	}
	return text, uint32(info.Mode().Perm()), nil
}

// parseServices parses port mappings in flyctl's format. Mappings to the same machine port
// and protocol form one service.
func parseServices(list []string) ([]workload.ServiceConfig, error) {
	var out []workload.ServiceConfig
	for _, s := range list {
		protocol, inner, port, err := parseService(s)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(out, func(x workload.ServiceConfig) bool { return x.Protocol == protocol && x.InternalPort == inner })
		if i < 0 {
			out = append(out, workload.ServiceConfig{Protocol: protocol, InternalPort: inner})
			i = len(out) - 1
		}
		out[i].Ports = append(out[i].Ports, port)
	}
	return out, nil
}

func parseService(s string) (protocol string, inner int, port workload.PortConfig, err error) {
	bad := func() error {
		return bourse.Errorf(bourse.CodeInvalid, "%s: use [PORT:]MACHINEPORT[/tcp|udp[:HANDLER...]]", bourse.Quoted(s))
	}
	numbers, rest, _ := strings.Cut(s, "/")
	protocol, handlers, _ := strings.Cut(rest, ":")
	protocol = cmp.Or(protocol, "tcp")
	outer, innerText, two := strings.Cut(numbers, ":")
	if !two {
		innerText = outer
	}
	number, ok1 := cli.ParsePort(outer)
	inner, ok2 := cli.ParsePort(innerText)
	if !ok1 || !ok2 || (protocol != "tcp" && protocol != "udp") {
		return "", 0, port, bad()
	}
	port = workload.PortConfig{Port: &number}
	if handlers == "" {
		return protocol, inner, port, nil
	}
	for h := range strings.SplitSeq(handlers, ":") {
		if !slices.Contains([]string{"http", "tls", "pg_tls", "proxy_proto"}, h) {
			return "", 0, port, bad()
		}
		port.Handlers = append(port.Handlers, workload.Handler(h))
	}
	return protocol, inner, port, nil
}
