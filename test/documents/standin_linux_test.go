package documents

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// standIns contains replacements for programs that do not work in a namespace. A process of
// this test's program runs a replacement if it is started under the program's name.
var standIns = map[string]func(args []string) error{"systemctl": systemctl, "scp": scp}

// standIn runs a replacement if this process was started under its name. Otherwise it
// returns false.
func standIn() (status int, is bool) {
	program := standIns[filepath.Base(os.Args[0])]
	if program == nil {
		return 0, false
	}
	if err := program(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1, true
	}
	return 0, true
}

// yardVariable is the environment variable with the path of the directory that contains
// each host's files, by address.
const yardVariable = "DOCUMENTS_YARD"

// scp copies files to a directory of another host: scp FILE… root@ADDRESS:DIR.
func scp(args []string) error {
	address, dir, ok := strings.Cut(args[len(args)-1], ":")
	if !ok {
		return fmt.Errorf("scp %q: the destination host is unknown", args)
	}
	root := filepath.Join(os.Getenv(yardVariable), strings.TrimPrefix(address, "root@"))
	for _, name := range args[:len(args)-1] {
		to := filepath.Join(root, dir)
		if info, err := os.Stat(to); err == nil && info.IsDir() {
			to = filepath.Join(to, filepath.Base(name))
		}
		if err := copyFile(name, to); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string) error {
	r, err := os.Open(from)
	if err != nil {
		return err
	}
	defer r.Close()
	info, err := r.Stat()
	if err != nil {
		return err
	}
	w, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, info.Mode())
	if err != nil {
		return err
	}
	_, err = io.Copy(w, r)
	return errors.Join(err, w.Close())
}

// systemctl starts and stops the programs of unit files.
func systemctl(args []string) error {
	unit := strings.TrimSuffix(args[len(args)-1], ".service")
	switch verb := args[0]; verb {
	case "daemon-reload":
		return nil
	case "enable", "start":
		return startUnit(unit)
	case "stop":
		return stopUnit(unit)
	case "restart":
		return errors.Join(stopUnit(unit), startUnit(unit))
	case "reload":
		return reloadUnit(unit)
	default:
		return fmt.Errorf("systemctl %s: not supported by this replacement", verb)
	}
}

const unitDir = "/etc/systemd/system"

// readUnit returns the settings in a unit file's [Service] section. If a setting occurs
// several times, the last one counts.
func readUnit(unit string) (map[string]string, error) {
	text, err := os.ReadFile(filepath.Join(unitDir, unit+".service"))
	if err != nil {
		return nil, err
	}
	more, _ := filepath.Glob(filepath.Join(unitDir, unit+".service.d", "*.conf"))
	for _, name := range more {
		add, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		text = append(text, add...)
	}
	set := map[string]string{}
	for line := range strings.Lines(strings.ReplaceAll(string(text), "\\\n", " ")) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			set[key] = value
		}
	}
	return set, nil
}

// environment reads a file with NAME=VALUE lines.
func environment(path string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	env := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(name, "#") {
			env[name] = value
		}
	}
	return env, err
}

// words splits a command line into words and replaces variables like systemd: $NAME as a
// separate word may become several words, or none.
func words(line string, env map[string]string) []string {
	var out []string
	for word := range strings.FieldsSeq(line) {
		if name, alone := strings.CutPrefix(word, "$"); alone && !strings.HasPrefix(name, "{") {
			out = append(out, strings.Fields(env[name])...)
			continue
		}
		for name, value := range env {
			word = strings.ReplaceAll(word, "${"+name+"}", value)
		}
		out = append(out, word)
	}
	return out
}

func startUnit(unit string) error {
	set, err := readUnit(unit)
	if err != nil {
		return err
	}
	env := map[string]string{}
	if path := set["EnvironmentFile"]; path != "" {
		if env, err = environment(path); err != nil {
			return err
		}
	}
	socket := "/run/" + unit + ".notify"
	_ = os.Remove(socket) // left behind by the previous start
	ready, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer ready.Close()
	log, err := os.Create("/run/" + unit + ".log")
	if err != nil {
		return err
	}
	defer log.Close()
	line := words(set["ExecStart"], env)
	c := exec.Command(line[0], line[1:]...)
	c.Stdout, c.Stderr, c.Dir = log, log, "/"
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "NOTIFY_SOCKET=" + socket}
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.Start(); err != nil {
		return err
	}
	if err := os.WriteFile("/run/"+unit+".pid", []byte(strconv.Itoa(c.Process.Pid)), 0o600); err != nil {
		return err
	}
	if set["Type"] != "notify" {
		return nil
	}
	go func() {
		_ = c.Wait() // the log contains the reason
		_ = ready.Close()
	}()
	buf := make([]byte, 100)
	if n, _ := ready.Read(buf); !strings.Contains(string(buf[:n]), "READY=1") {
		text, _ := os.ReadFile(log.Name())
		return fmt.Errorf("%s did not report READY=1:\n%s", unit, text)
	}
	return nil
}

// pidOf returns the process ID of a unit's program.
func pidOf(unit string) (int, error) {
	text, err := os.ReadFile("/run/" + unit + ".pid")
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(text))
}

// reloadUnit sends SIGHUP to a unit's program, and waits until one of its servers has been restarted.
func reloadUnit(unit string) error {
	pid, err := pidOf(unit)
	if err != nil {
		return err
	}
	served := func() int {
		text, _ := os.ReadFile("/run/" + unit + ".log") // empty if it cannot be read
		return strings.Count(string(text), "msg=serving")
	}
	before := served()
	if err := syscall.Kill(pid, syscall.SIGHUP); err != nil {
		return err
	}
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if served() > before {
			return nil
		}
	}
	return fmt.Errorf("%s did not restart any server", unit)
}

func stopUnit(unit string) error {
	pid, err := pidOf(unit)
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); errors.Is(err, syscall.ESRCH) {
		return nil // the program has crashed
	} else if err != nil {
		return err
	}
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		stat, err := os.Open(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return nil //nolint:nilerr // the program has exited
		}
		line, _ := bufio.NewReader(stat).ReadString('\n')
		_ = stat.Close()
		if strings.Contains(line, ") Z ") {
			return nil
		}
	}
	return fmt.Errorf("%s did not exit", unit)
}
