package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/bourse-dev/bourse/driver/vm/session"
)

// runExec runs another program in the guest and returns the program's exit code.
func runExec(name string) (int, error) {
	var program session.Program
	data, err := os.ReadFile(session.ExecFile(name))
	if err != nil {
		return failed, err
	}
	if err := json.Unmarshal(data, &program); err != nil {
		return failed, fmt.Errorf("read the program: %w", err)
	}
	orders, restore := follow(program.Terminal)
	defer restore()
	if program.Terminal {
		program.Size = sizeOf(os.Stdin)
		if _, err := os.Stdout.Write([]byte{session.TerminalReady}); err != nil {
			return failed, err
		}
	}
	streams := session.Streams{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	exit, err := session.Run(dialMachine, program, streams, orders, func() {})
	if start, ok := errors.AsType[*session.StartError](err); ok {
		writeJSON(session.ExecErrorFile(name), session.Report{Error: start.Text, Invalid: start.Invalid})
		return failed, nil
	}
	if err != nil {
		return failed, err
	}
	return exit.Code, nil
}

// dialMachine opens a stream to the guest through the container's first process.
func dialMachine() (session.Stream, error) {
	return net.DialUnix("unix", nil, &net.UnixAddr{Name: session.ExecSocket})
}
