package process

import (
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

func TestResolvConf(t *testing.T) {
	for name, c := range map[string]struct {
		network driver.Network
		want    string
		bad     bool
	}{
		"nothing":                     {driver.Network{Hostname: "x", Hosts: []string{"::1 y"}}, "", false},
		"all":                         {driver.Network{Resolver: []string{"fdaa::3", "10.0.0.1"}, Search: []string{"a", "b.c"}, Options: []string{"ndots:1"}}, "nameserver fdaa::3\nnameserver 10.0.0.1\nsearch a b.c\noptions ndots:1\n", false},
		"a name as the server":        {driver.Network{Resolver: []string{"localhost"}}, "", true},
		"several lines as the server": {driver.Network{Resolver: []string{"10.0.0.1\nsearch evil"}}, "", true},
		"several lines as the domain": {driver.Network{Search: []string{"a\nnameserver 10.0.0.1"}}, "", true},
		"two words":                   {driver.Network{Options: []string{"a b"}}, "", true},
		"an empty domain":             {driver.Network{Search: []string{""}}, "", true},
		"an address's scope":          {driver.Network{Resolver: []string{"fe80::1%lo"}}, "nameserver fe80::1%lo\n", false},
	} {
		got, err := resolvConf(&c.network)
		if string(got) != c.want || (bourse.CodeOf(err) == bourse.CodeInvalid) != c.bad {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, c.want)
		}
	}
}

// TestSpec checks which settings are invalid for image host.
func TestSpec(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*driver.Task)
		ok     bool
	}{
		"a command":                {func(*driver.Task) {}, true},
		"devices":                  {func(t *driver.Task) { t.Devices = []string{"vendor.com/class=name"} }, true},
		"arguments and a command":  {func(t *driver.Task) { t.Entrypoint, t.Args = []string{"x"}, []string{"y"} }, true},
		"arguments alone":          {func(t *driver.Task) { t.Command, t.Args = nil, []string{"y"} }, false},
		"an entrypoint alone":      {func(t *driver.Task) { t.Command, t.Entrypoint = nil, []string{"y"} }, false},
		"a terminal":               {func(t *driver.Task) { t.TTY = true }, false},
		"a runtime":                {func(t *driver.Task) { t.Root.Runtime = "runsc" }, false},
		"a read-only root":         {func(t *driver.Task) { t.Root.ReadOnly = true }, false},
		"scratch":                  {func(t *driver.Task) { t.Root.Scratch = "/tmp" }, false},
		"files":                    {func(t *driver.Task) { t.Root.Files = []driver.File{{Path: "/x"}} }, false},
		"a network without a path": {func(t *driver.Task) { t.Network = &driver.Network{} }, false},
		"a mount without paths":    {func(t *driver.Task) { t.Mounts = []driver.Mount{{}} }, false},
	} {
		task := program("true")
		c.change(&task)
		if _, err := specOf(task); (err == nil) != c.ok || (err != nil && bourse.CodeOf(err) != bourse.CodeInvalid) {
			t.Errorf("%s: got %v, want ok %v", name, err, c.ok)
		}
	}
}
