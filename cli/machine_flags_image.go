package cli

import (
	"encoding/json"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/bourse-dev/bourse"
)

// imageFlags say what a machine has beside its program: services, storage and
// files, named as flyctl's where it has them.
type imageFlags struct {
	ports, files, literals []string
	volume, rootSize       string
	readOnly, tty          bool
	runtime                string
}

func (f *imageFlags) bind(flags *pflag.FlagSet) {
	flags.StringArrayVarP(&f.ports, "port", "p", nil, "serve a `port` of the machine, such as 80, 443:8080 (outside, inside) or 443:8080/tcp:tls:http; may be repeated")
	flags.StringVarP(&f.volume, "volume", "v", "", "mount a volume, `VOLUME:/PATH`: its id, or its name in the app")
	flags.StringArrayVar(&f.files, "file-local", nil, "write a local file into the machine, `/PATH=FILE`; may be repeated")
	flags.StringArrayVar(&f.literals, "file-literal", nil, "write a text into the machine, `/PATH=TEXT`; may be repeated")
	flags.StringVar(&f.rootSize, "rootfs-size", "", "most that it may write to its root, a `size` such as 2GiB")
	flags.BoolVar(&f.readOnly, "read-only", false, "its root cannot be written")
	flags.BoolVar(&f.tty, "tty", false, "its program has a terminal")
	flags.StringVar(&f.runtime, "vm-runtime", "", "containerd's `name` of the runtime, such as io.containerd.runsc.v1 (default: the worker's)")
}

// apply puts what the flags say into a config. A volume's name is left for
// mountVolume: only the API knows which id it means.
func (f *imageFlags) apply(c *bourse.Config) error {
	services, err := parseServices(f.ports)
	if err != nil {
		return named("--port", err)
	}
	if len(services) > 0 {
		if c.Services, err = json.Marshal(services); err != nil {
			return err
		}
	}
	if err := f.addFiles(c); err != nil {
		return err
	}
	if f.rootSize != "" || f.readOnly {
		c.Rootfs = &bourse.Rootfs{ReadOnly: f.readOnly}
	}
	if f.rootSize != "" {
		size, err := parseMiB(f.rootSize)
		if err == nil && size%1024 != 0 {
			err = bourse.Errorf(bourse.CodeInvalid, "%s: use whole gigabytes", bourse.Quoted(f.rootSize))
		}
		if err != nil {
			return named("--rootfs-size", err)
		}
		c.Rootfs.SizeGB = int64(size) / 1024
	}
	c.Init.TTY, c.Runtime = f.tty, f.runtime
	return nil
}

func (f *imageFlags) addFiles(c *bourse.Config) error {
	for _, s := range f.files {
		where, name, err := parsePair(s)
		if err != nil {
			return named("--file-local", err)
		}
		text, mode, err := readLocal(name)
		if err != nil {
			return named("--file-local", err)
		}
		c.Files = append(c.Files, bourse.File{GuestPath: where, RawValue: text, Mode: mode})
	}
	for _, s := range f.literals {
		where, text, err := parsePair(s)
		if err != nil {
			return named("--file-literal", err)
		}
		c.Files = append(c.Files, bourse.File{GuestPath: where, RawValue: []byte(text)})
	}
	return nil
}

// maxLocalFile is somewhat more than a config's files may have together: then
// the sentence about that is told.
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

// service is what --port makes of a port, in the Machines API's JSON.
type service struct {
	Protocol     string        `json:"protocol"`
	InternalPort int           `json:"internal_port"`
	Ports        []servicePort `json:"ports"`
}

type servicePort struct {
	Port     int      `json:"port"`
	Handlers []string `json:"handlers,omitempty"`
}

// parseServices reads ports as flyctl has them. Those of one machine port and
// protocol are one service.
func parseServices(list []string) ([]service, error) {
	var out []service
	for _, s := range list {
		protocol, inner, port, err := parseService(s)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(out, func(x service) bool { return x.Protocol == protocol && x.InternalPort == inner })
		if i < 0 {
			out = append(out, service{Protocol: protocol, InternalPort: inner})
			i = len(out) - 1
		}
		out[i].Ports = append(out[i].Ports, port)
	}
	return out, nil
}

func parseService(s string) (protocol string, inner int, port servicePort, err error) {
	bad := func() (string, int, servicePort, error) {
		return "", 0, servicePort{}, bourse.Errorf(bourse.CodeInvalid, "%s: use [PORT:]MACHINEPORT[/tcp|udp[:HANDLER...]]", bourse.Quoted(s))
	}
	numbers, rest, _ := strings.Cut(s, "/")
	protocol, handlers, _ := strings.Cut(rest, ":")
	protocol = orElse(protocol, "tcp")
	outer, innerText, two := strings.Cut(numbers, ":")
	if !two {
		innerText = outer
	}
	number, ok1 := parsePort(outer)
	inner, ok2 := parsePort(innerText)
	if !ok1 || !ok2 || (protocol != "tcp" && protocol != "udp") {
		return bad()
	}
	port = servicePort{Port: number}
	if handlers != "" {
		port.Handlers = strings.Split(handlers, ":")
	}
	for _, h := range port.Handlers {
		if !slices.Contains([]string{"http", "tls", "pg_tls", "proxy_proto"}, h) {
			return bad()
		}
	}
	return protocol, inner, port, nil
}

func parsePort(s string) (int, bool) {
	n, err := strconv.ParseUint(s, 10, 16)
	return int(n), err == nil && n > 0
}

// parseVolume reads "VOLUME:/PATH".
func parseVolume(s string) (volume, path string, err error) {
	volume, path, ok := strings.Cut(s, ":")
	if !ok || volume == "" || !strings.HasPrefix(path, "/") {
		return "", "", bourse.Errorf(bourse.CodeInvalid, "%s: use VOLUME:/PATH", bourse.Quoted(s))
	}
	return volume, path, nil
}
