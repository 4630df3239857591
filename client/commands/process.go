package commands

import (
	"os"
	"strings"
	"unicode/utf8"

	"github.com/alecthomas/kong"

	"github.com/custody-project/custody/client"
)

// Argument is one of a command's, byte for byte: kong's own strings are UTF-8.
type Argument string

// Decode implements kong.MapperValue.
func (a *Argument) Decode(ctx *kong.DecodeContext) error {
	t, err := ctx.Scan.PopValue("argument")
	*a = Argument(t.String())
	return err
}

// Given returns a command without the -- before it.
func Given(list []Argument) (command []string) {
	for _, a := range list {
		command = append(command, string(a))
	}
	if len(command) > 0 && command[0] == "--" {
		command = command[1:]
	}
	return command
}

// environment returns variables as a request has them. A name alone stands for the value in this process's environment.
func environment(list []string) (map[string]string, error) {
	env := map[string]string{}
	for _, v := range list {
		name, value, given := strings.Cut(v, "=")
		if !given {
			var ok bool
			if value, ok = os.LookupEnv(name); !ok {
				return nil, failure("set it, or give -e "+name+"=VALUE", "-e %s: there is no such variable", name)
			}
		}
		env[name] = value
	}
	return env, nil
}

// request returns the request to start a command.
func request(command []Argument, env, secrets []string) (client.ProcessRequest, error) {
	r := client.ProcessRequest{Argv: Given(command), Secrets: secrets}
	if len(r.Argv) == 0 {
		return r, failure("give a command after --", "there is nothing to run")
	}
	var err error
	if r.Env, err = environment(env); err != nil {
		return r, err
	}
	for _, text := range r.Argv {
		if !utf8.ValidString(text) {
			return r, failure("pass other bytes through a file or standard input", "an argument is not UTF-8, which a service takes only")
		}
	}
	for name, value := range r.Env {
		if !utf8.ValidString(name + value) {
			return r, failure("pass other bytes through a file or standard input", "the variable %q is not UTF-8, which a service takes only", name)
		}
	}
	return r, nil
}
