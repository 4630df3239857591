package agekey

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"filippo.io/age"
	"golang.org/x/term"
)

// maxTyping bounds the wait for input.
const maxTyping = 5 * time.Minute

// openWithWord decrypts with the passphrase, which it asks for once in this process.
func (l *Lock) openWithWord(sealed []byte) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	word := l.word
	if word == "" {
		var err error
		if word, err = l.config.Ask("passphrase of the host's signing key: "); err != nil {
			return nil, err
		}
	}
	id, err := age.NewScryptIdentity(word)
	if err != nil {
		return nil, &Error{errors.New("the passphrase is empty"), "type the passphrase with which the key was made"}
	}
	id.SetMaxWorkFactor(maxWorkToTry)
	key, err := l.decrypt(sealed, id)
	if err == nil {
		l.word = word
	}
	return key, err
}

// newWord returns the recipient of the passphrase that opened the key before, or else of a new one.
func (l *Lock) newWord() ([]age.Recipient, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.word == "" {
		word, err := l.config.Ask("new passphrase for the host's signing key: ")
		if err != nil {
			return nil, err
		}
		if len(word) < minWord {
			return nil, &Error{fmt.Errorf("the passphrase has fewer than %d characters", minWord), "a person with a copy of the file can try any number of passphrases: choose five random words or more"}
		}
		again, err := l.config.Ask("the same again: ")
		if err != nil {
			return nil, err
		}
		if again != word {
			return nil, &Error{errors.New("the two passphrases differ"), "type the same passphrase twice"}
		}
		l.word = word
	}
	to, err := age.NewScryptRecipient(l.word)
	if err != nil {
		return nil, err
	}
	to.SetWorkFactor(workFactor)
	return []age.Recipient{to}, nil
}

// askTerminal reads a line from the terminal of this process, wherever its input comes from.
func askTerminal(prompt string) (string, error) {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return "", &Error{fmt.Errorf("the host's key opens with a passphrase, and there is no terminal to ask for it on: %w", err),
			"start it in a terminal, or open the key with an identity (key: age:FILE in host.yaml)"}
	}
	defer tty.Close()
	before, err := term.GetState(int(tty.Fd()))
	if err != nil {
		return "", fmt.Errorf("read the passphrase: %w", err)
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(ended)
	fmt.Fprint(tty, "custody: "+prompt)
	defer fmt.Fprintln(tty)
	type answer struct {
		word []byte
		err  error
	}
	typed := make(chan answer, 1)
	go func() { // it outlives this call if no input comes; the process is about to end then
		word, err := term.ReadPassword(int(tty.Fd()))
		typed <- answer{word, err}
	}()
	select {
	case a := <-typed:
		if a.err != nil {
			return "", fmt.Errorf("read the passphrase: %w", a.err)
		}
		return string(a.word), nil
	case <-ended:
		err = errors.New("canceled")
	case <-time.After(maxTyping):
		err = fmt.Errorf("no input within %s", maxTyping)
	}
	return "", errors.Join(fmt.Errorf("no passphrase for the host's key: %w", err), term.Restore(int(tty.Fd()), before))
}
