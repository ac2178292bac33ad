package drivertest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// apartCases check that a task can have its own network, name servers and mounts instead of its
// host's. They require root.
var apartCases = map[string]func(*suite){
	"a private network": func(s *suite) {
		s.need("its networks", s.p.Networks != nil)
		task := s.task(s.p.Networks)
		task.Network = &driver.Network{Namespace: Netns(s.T)}
		if exit := s.run(task); exit.Failed() {
			s.Errorf("exit %+v", exit)
		}
		if got := texts(s.logs(task.ID.Machine, driver.LogQuery{}), "stdout"); !slices.Equal(got, []string{"lo"}) {
			s.Errorf("it sees %q, want only lo", got)
		}
		if s.h.Image == bourse.ImageHost {
			task = s.task(s.p.Networks) // the networks of other tasks must not have changed
			s.run(task)
			got := texts(s.logs(task.ID.Machine, driver.LogQuery{}), "stdout")
			if own := hostNetworks(s.T); !slices.Equal(got, own) {
				s.Errorf("a task without a network sees %q, want the host's %q", got, own)
			}
		}
		task = s.task(s.p.Networks)
		task.Network = &driver.Network{Namespace: filepath.Join(s.TempDir(), "missing")}
		_, err := s.d.Start(s.ctx, task)
		s.wantCode("a missing network namespace", err, bourse.CodeInvalid)
	},
	"exec runs in the task's network": func(s *suite) {
		s.need("its networks", s.p.Networks != nil)
		task := s.task(s.p.Run)
		task.Network = &driver.Network{Namespace: Netns(s.T)}
		s.start(task)
		s.awaitReady(task.ID.Machine)
		got, err := s.d.Exec(s.ctx, task.ID, driver.Exec{Command: s.p.Networks})
		if err != nil || string(got.Stdout) != "lo\n" {
			s.Errorf("the task's interfaces are %q, %v, want only lo", got.Stdout, err)
		}
		s.stop(task.ID)
	},
	"private name servers": func(s *suite) {
		s.need("reading files", s.p.Read != nil)
		hosts, _ := os.ReadFile("/etc/resolv.conf")
		task := s.task(s.p.Run)
		task.Network = &driver.Network{
			Namespace: Netns(s.T), Resolver: []string{"192.0.2.53", "fdaa::3"}, Search: []string{"internal"}, Options: []string{"ndots:1"},
		}
		s.start(task)
		s.awaitReady(task.ID.Machine)
		got, err := s.d.Exec(s.ctx, task.ID, driver.Exec{Command: s.p.Read("/etc/resolv.conf")})
		if err != nil {
			s.Fatal(err)
		}
		for _, line := range []string{"nameserver 192.0.2.53", "nameserver fdaa::3", "search internal", "options ndots:1"} {
			if !slices.Contains(strings.Split(string(got.Stdout), "\n"), line) {
				s.Errorf("resolv.conf is %q, want a line %q", got.Stdout, line)
			}
		}
		if now, _ := os.ReadFile("/etc/resolv.conf"); string(now) != string(hosts) {
			s.Errorf("the host's resolv.conf is now %q, want %q as before", now, hosts)
		}
		s.stop(task.ID)
	},
	"mounts": func(s *suite) {
		s.need("writing files", s.p.Write != nil && s.p.Read != nil)
		needRoot(s.T)
		source, target := s.TempDir(), s.TempDir()
		file := filepath.Join(target, "file")
		task := s.task(s.p.Write(file, "hello"))
		task.Mounts = []driver.Mount{{Source: source, Target: target}}
		if exit := s.run(task); exit.Failed() {
			s.Errorf("writing through the mount: got exit %+v, want success", exit)
		}
		if got, err := os.ReadFile(filepath.Join(source, "file")); err != nil || string(got) != "hello" {
			s.Errorf("the mount's source contains %q, %v, want the text that was written through the mount", got, err)
		}
		if _, err := os.Stat(file); err == nil {
			s.Errorf("the task's mount is visible on the host")
		}
		task.ID.Boot, task.Command, task.Mounts[0].ReadOnly = 2, s.p.Write(file, "changed"), true
		if exit := s.run(task); !exit.Failed() {
			s.Errorf("writing through a read-only mount: got exit %+v, want a failure", exit)
		}
		task.ID.Boot, task.Command = 3, s.p.Run
		s.start(task)
		s.awaitReady(task.ID.Machine)
		got, err := s.d.Exec(s.ctx, task.ID, driver.Exec{Command: s.p.Read(file)})
		if err != nil || string(got.Stdout) != "hello" {
			s.Errorf("reading the file with Exec: got %q, %v, want \"hello\"", got.Stdout, err)
		}
		s.stop(task.ID)
	},
	"invalid mounts": func(s *suite) {
		s.need("writing files", s.p.Write != nil)
		needRoot(s.T)
		missing := filepath.Join(s.TempDir(), "missing")
		for what, m := range map[string]driver.Mount{
			"a missing source":  {Source: missing, Target: s.TempDir()},
			"a relative source": {Source: "etc", Target: s.TempDir()},
			"a relative target": {Source: s.TempDir(), Target: "etc"},
		} {
			task := s.task(s.p.Run)
			task.Mounts = []driver.Mount{m}
			_, err := s.d.Start(s.ctx, task)
			s.wantCode(what, err, bourse.CodeInvalid)
		}
		if s.h.Image == bourse.ImageHost {
			task := s.task(s.p.Run)
			task.Mounts = []driver.Mount{{Source: s.TempDir(), Target: missing}}
			_, err := s.d.Start(s.ctx, task)
			s.wantCode("a target that does not exist on the host", err, bourse.CodeInvalid)
		}
		s.wantProcesses(0)
	},
}
