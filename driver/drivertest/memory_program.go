package drivertest

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// Script returns the command of a program for a Memory host. A command is a list of instructions,
// executed in order:
//
//	print TEXT    print a line to stdout
//	warn TEXT     print a line to stderr
//	lines A B     print the lines "line A" to "line B-1" to stdout
//	env NAME      print the value of an environment variable to stdout
//	pwd           print the working directory to stdout
//	user          print Task.User to stdout
//	cat           copy stdin to stdout
//	size          print "size ROWS COLUMNS" of the terminal to stdout (in an Exec)
//	sleep DUR     wait for a duration, such as 100ms
//	ignore        ignore all signals except SIGKILL from now on
//	run           continue until a signal ends the program
//	oom           end as if killed for exceeding its memory limit
//	exit CODE     exit with this code; a program without exit ends with code 0
//
// A command whose first word is not an instruction, such as "missing", cannot be started.
func Script(words ...string) []string { return words }

// arity maps each instruction to the number of its arguments.
var arity = map[string]int{
	"print": 1, "warn": 1, "lines": 2, "env": 1, "pwd": 0, "user": 0, "cat": 0, "size": 0, "sleep": 1, "ignore": 0, "run": 0, "oom": 0, "exit": 1,
}

// program is a command being executed. Its host's mutex guards it.
type program struct {
	task    driver.Task
	rest    []string
	stdin   string
	size    driver.Size // the terminal's size
	ignore  bool
	stopped bool
	timer   *time.Timer
	line    func(stream, text string, partial bool)
	end     func(bourse.Exit)
}

// checkScript returns CodeInvalid if a command contains an unknown or incomplete instruction.
func checkScript(words []string) error {
	if len(words) == 0 || words[0] == "" {
		return bourse.Errorf(bourse.CodeInvalid, "no command")
	}
	for len(words) > 0 {
		n, ok := arity[words[0]]
		if !ok || len(words) <= n {
			return bourse.Errorf(bourse.CodeInvalid, "command %s does not exist", bourse.Quoted(words[0]))
		}
		words = words[1+n:]
	}
	return nil
}

// step executes instructions until the program sleeps or ends. When a sleep is over, a timer calls run with a function
// that continues the program. The parameter run must call that function with the host's mutex held.
func (p *program) step(run func(func())) {
	for len(p.rest) > 0 {
		word := p.rest[0]
		args := p.rest[1 : 1+arity[word]]
		p.rest = p.rest[1+arity[word]:]
		switch word {
		case "sleep":
			d, _ := time.ParseDuration(args[0])
			p.timer = time.AfterFunc(d, func() { run(func() { p.step(run) }) })
			return
		case "run":
			p.rest = nil
			return
		case "exit":
			code, _ := strconv.Atoi(args[0])
			p.end(bourse.Exit{Code: code & 0xff})
			return
		case "oom":
			p.end(bourse.Exit{Code: -1, Signal: bourse.Signal("SIGKILL").Number(), OOMKilled: true})
			return
		case "ignore":
			p.ignore = true
		default:
			p.print(word, args)
		}
	}
	p.end(bourse.Exit{})
}

func (p *program) print(word string, args []string) {
	switch word {
	case "print":
		p.say("stdout", args[0])
	case "warn":
		p.say("stderr", args[0])
	case "lines":
		from, _ := strconv.Atoi(args[0])
		to, _ := strconv.Atoi(args[1])
		for i := from; i < to; i++ {
			p.say("stdout", "line "+strconv.Itoa(i))
		}
	case "env":
		for _, kv := range p.task.Env {
			if value, ok := strings.CutPrefix(kv, args[0]+"="); ok {
				p.say("stdout", value)
			}
		}
	case "pwd":
		p.say("stdout", p.task.Dir)
	case "user":
		p.say("stdout", p.task.User)
	case "size":
		p.say("stdout", "size "+strconv.Itoa(int(p.size.Rows))+" "+strconv.Itoa(int(p.size.Cols)))
	case "cat":
		for line := range strings.Lines(p.stdin) {
			text, whole := strings.CutSuffix(line, "\n")
			p.line("stdout", text, !whole)
		}
	}
}

func (p *program) say(stream, text string) { p.line(stream, text, false) }

// signal returns the program's exit and true if the signal s terminates the program. It returns
// false if the program continues.
func (p *program) signal(s bourse.Signal) (bourse.Exit, bool) {
	if slices.Contains([]bourse.Signal{"SIGSTOP", "SIGCONT", "SIGTSTP", "SIGWINCH"}, s) {
		return bourse.Exit{}, false
	}
	if p.ignore && s != "SIGKILL" {
		return bourse.Exit{}, false
	}
	return bourse.Exit{Code: -1, Signal: s.Number()}, true
}

// stop prevents the program from executing any more instructions.
func (p *program) stop() {
	p.rest, p.stopped = nil, true
	if p.timer != nil {
		p.timer.Stop()
	}
}
