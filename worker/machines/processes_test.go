package machines

import (
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
)

// TestOf checks that a shell is listed with its child and its listening socket.
func TestOf(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("the host has no /proc")
	}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	file, err := listener.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	shell := exec.CommandContext(t.Context(), "/bin/sh", "-c", "echo up; cat; :")
	shell.Dir, shell.ExtraFiles = t.TempDir(), []*os.File{file}
	in, err := shell.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := shell.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = shell.Wait() }()
	defer in.Close()
	if _, err := out.Read(make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil { // once the child has echoed the input, it is running
		t.Fatal(err)
	}
	got, err := Table{Root: "/proc"}.Of(shell.Process.Pid)
	if err != nil || len(got) != 2 {
		t.Fatalf("%+v, %v, want two processes", got, err)
	}
	main := got[0]
	want := bourse.ListenSocket{Proto: "tcp", Address: listener.Addr().String()}
	if main.PID != int64(shell.Process.Pid) || !strings.HasPrefix(main.Command, "/bin/sh -c echo up") || main.Directory != shell.Dir || !slices.Contains(main.Listens, want) || main.RSS == 0 {
		t.Errorf("unexpected shell: %+v", main)
	}
	if got[1].Command != "cat" {
		t.Errorf("unexpected child: %+v", got[1])
	}
	if _, err := (Table{Root: "/proc"}).Of(1 << 30); bourse.CodeOf(err) != bourse.CodeNotFound {
		t.Errorf("a missing process: %v", err)
	}
	if _, err := (Table{Root: t.TempDir() + "/none"}).Of(1); bourse.CodeOf(err) != bourse.CodeFailedPrecondition {
		t.Errorf("a host without /proc: %v", err)
	}
}

// If a machine has its own cgroup, all processes in it belong to the machine, whatever their parents are.
func TestMembers(t *testing.T) {
	root := t.TempDir()
	for pid, group := range map[string]string{"1": "/", "5": "/", "7": "/m", "8": "/m", "9": "/m", "10": "/"} {
		if err := os.MkdirAll(root+"/"+pid, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(root+"/"+pid+"/cgroup", []byte("0::"+group), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	all := map[int]process{1: {}, 5: {parent: 1}, 7: {parent: 5}, 8: {parent: 7}, 9: {parent: 1}, 10: {parent: 5}}
	if got, want := (Table{root}).members(all, 7), []int{7, 8, 9}; !slices.Equal(got, want) {
		t.Errorf("processes %v, want %v", got, want)
	}
	if got, want := (Table{root}).members(all, 5), []int{5, 7, 8, 10}; !slices.Equal(got, want) {
		t.Errorf("processes without a cgroup: %v, want %v", got, want)
	}
	loop := map[int]process{2: {parent: 3}, 3: {parent: 2}, 4: {parent: 1}}
	if got := (Table{root}).members(loop, 4); !slices.Equal(got, []int{4}) {
		t.Errorf("with a cycle of parents: %v", got)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("7 (a) b)) S 1 7 7 0 -1 4194304 1 0 0 0 12 34 0 0 20 0 1 0 99 1000 55 0"))
	f.Add([]byte("  0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 4711 1"))
	f.Add([]byte("  0: 00000000000000000000000000000000:1F90 0:0 0A 0 0 0 0 0 4711 1"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if p, ok := parseStat(text); ok && (p.user < 0 || p.pages < 0 || p.parent < 0) {
			t.Errorf("%+v", p)
		}
		out := map[string]bourse.ListenSocket{}
		parseSockets(string(text), "tcp", stateListen, out)
		for link, s := range out {
			if !strings.HasPrefix(link, "socket:[") || s.Address == "invalid AddrPort" {
				t.Errorf("%s: %+v", link, s)
			}
		}
	})
}
