package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"shoal/internal/model"
	"shoal/internal/modelstore"
)

// A modelServerCommand is the command line of multi-model-server or torchserve. It
// is read as the originals read theirs: options may be abbreviated, and --models
// takes any number of values.
type modelServerCommand struct {
	name    string
	dialect modelstore.Dialect

	values map[string]string // of options with a value, by their long name
	flags  map[string]bool
	models []string
}

// The options of the commands: those with a value, and those without.
var (
	commonValues = []string{"--model-store", "--log-config", "--batching", "--python"}
	mmsValues    = []string{"--mms-config"}
	tsValues     = []string{"--ts-config", "--workflow-store", "--cpp-log-config", "--plugins-path", "--ppath"}
	commonFlags  = []string{"--start", "--stop", "--foreground", "--help"}
	tsFlags      = []string{"--version", "--no-config-snapshots", "--ncs", "--disable-token-auth", "--enable-model-api"}
)

// modelServerNames are the names under which the binary is a model server.
var modelServerNames = map[string]modelstore.Dialect{
	"multi-model-server": modelstore.MMS, "mxnet-model-server": modelstore.MMS, "torchserve": modelstore.TorchServe,
}

// runModelServer runs the binary under one of those names and returns the exit code.
func runModelServer(name string, args []string, stdout, stderr io.Writer) int {
	c := &modelServerCommand{name: name, dialect: modelServerNames[name]}
	if name == "mxnet-model-server" {
		fmt.Fprintln(stdout, "Warning: Calling MMS with mxnet-model-server. Please move to multi-model-server.")
		c.name = "multi-model-server"
	}
	if err := c.parse(args); err != nil {
		fmt.Fprintf(stderr, "%s%s: error: %v\n", c.usage(), c.name, err)
		return 2
	}
	switch {
	case c.flags["--help"]:
		fmt.Fprint(stdout, c.help())
		return exitDone
	case c.flags["--version"]:
		fmt.Fprintf(stdout, "TorchServe Version is %s (Shoal %s)\n", c.dialect.ServerVersion(), Version)
		return exitDone
	case c.flags["--stop"]:
		return c.stop(stdout)
	}
	if err := c.start(stdout, stderr); err != nil {
		if errors.Is(err, errSaid) {
			return exitFailed
		}
		sayLast(stdout, err.Error()+"\n")
		return exitFailed
	}
	return exitDone
}

// A said is an error in the words of the originals.
type said string

// Error implements error.
func (s said) Error() string { return string(s) }

// errSaid is an error whose text was printed.
var errSaid = errors.New("see above")

func (c *modelServerCommand) options() (values, flags []string) {
	values, flags = append([]string{"--models"}, commonValues...), append([]string{}, commonFlags...)
	if c.dialect == modelstore.TorchServe {
		return append(values, tsValues...), append(flags, tsFlags...)
	}
	return append(values, mmsValues...), flags
}

// parse reads the arguments.
func (c *modelServerCommand) parse(args []string) error {
	c.values, c.flags = map[string]string{}, map[string]bool{}
	values, flags := c.options()
	for i := 0; i < len(args); i++ {
		given, value, inline := strings.Cut(args[i], "=")
		switch given {
		case "-h":
			given = "--help"
		case "-v":
			given = "--version"
		case "--dt":
			given = "--disable-token-auth"
		}
		name, err := complete(given, append(append([]string{}, values...), flags...))
		if err != nil {
			return err
		}
		if contains(flags, name) {
			if inline {
				return fmt.Errorf("argument %s: ignored explicit argument %q", name, value)
			}
			c.flags[name] = true
			continue
		}
		if name == "--models" {
			c.models = nil
			if inline {
				c.models = []string{value}
			}
			for i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
				i++
				c.models = append(c.models, args[i])
			}
			if len(c.models) == 0 {
				return fmt.Errorf("argument --models: expected at least one argument")
			}
			continue
		}
		if !inline {
			if i++; i == len(args) {
				return fmt.Errorf("argument %s: expected one argument", name)
			}
			value = args[i]
		}
		c.values[name] = value
	}
	if c.flags["--ncs"] {
		c.flags["--no-config-snapshots"] = true
	}
	if c.flags["--start"] && c.flags["--stop"] {
		return errors.New("argument --stop: not allowed with argument --start")
	}
	return nil
}

func contains(list []string, s string) bool {
	for _, o := range list {
		if o == s {
			return true
		}
	}
	return false
}

// complete returns the option that an argument means.
func complete(given string, options []string) (string, error) {
	var found []string
	for _, o := range options {
		if o == given {
			return o, nil
		}
		if len(given) > 2 && strings.HasPrefix(o, given) {
			found = append(found, o)
		}
	}
	switch len(found) {
	case 0:
		return "", fmt.Errorf("unrecognized arguments: %s", given)
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("ambiguous option: %s could match %s", given, strings.Join(found, ", "))
}

// temp is the folder for the file with the process's number.
func (c *modelServerCommand) pidFile() string {
	dir := cmp.Or(os.Getenv("TMPDIR"), os.Getenv("TEMP"), os.Getenv("TMP"), os.TempDir())
	return filepath.Join(dir, ".model_server.pid")
}

// running returns the number of the process that runs; 0 when there is none.
func running(file string) int {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid <= 0 || syscall.Kill(pid, 0) == syscall.ESRCH {
		return -1
	}
	return pid
}

// check checks the paths that the command line names.
func (c *modelServerCommand) check() error {
	store := c.values["--model-store"]
	if store != "" {
		if info, err := os.Stat(store); err != nil || !info.IsDir() {
			return fmt.Errorf("--model-store directory not found: %s", store)
		}
	}
	for _, option := range []string{"--mms-config", "--ts-config", "--log-config"} {
		file := c.values[option]
		if file == "" || option == "--mms-config" && file == "sagemaker" {
			continue
		}
		if info, err := os.Stat(file); err != nil || info.IsDir() {
			if option == "--log-config" {
				file, _ = filepath.Abs(file)
			}
			return fmt.Errorf("%s file not found: %s", option, file)
		}
	}
	if store == "" && c.dialect == modelstore.MMS {
		for _, m := range c.models {
			if _, url, ok := strings.Cut(m, "="); ok {
				m = url
			}
			if !strings.HasPrefix(m, "http://") && !strings.HasPrefix(m, "https://") {
				return said("--model-store is required to load model locally.")
			}
		}
	}
	return nil
}

// configuration reads the server's configuration.
func (c *modelServerCommand) configuration() (*modelServerConfig, error) {
	args := map[string]string{}
	if s := c.values["--model-store"]; s != "" {
		args["model_store"] = s
	}
	if len(c.models) > 0 {
		args["load_models"] = strings.Join(c.models, ",")
	}
	if s := c.values["--batching"]; s != "" {
		args["batching"] = s
	}
	if c.flags["--disable-token-auth"] {
		args["disable_token_authorization"] = "true"
	}
	if c.flags["--enable-model-api"] {
		args["enable_model_api"] = "true"
	}
	cfg, err := newModelServerConfig(c.dialect, cmp.Or(c.values["--mms-config"], c.values["--ts-config"]), !c.flags["--no-config-snapshots"], args, os.Environ())
	if err != nil {
		return nil, err
	}
	if c.dialect == modelstore.TorchServe && cfg.store == "" {
		return nil, said("Missing mandatory parameter --model-store")
	}
	return cfg, nil
}

// childVariable marks the process that start leaves behind; it has the number of
// the descriptor on which that reports that it serves.
const childVariable = "SHOAL_MODEL_SERVER_CHILD"

// start starts the server, in the background unless --foreground is given.
func (c *modelServerCommand) start(stdout, stderr io.Writer) error {
	ready := os.Getenv(childVariable)
	if err := c.check(); err != nil {
		return err
	}
	cfg, err := c.configuration()
	if err != nil {
		return err
	}
	file := c.pidFile()
	if ready == "" {
		switch pid := running(file); {
		case pid > 0 && c.dialect == modelstore.MMS:
			return said("Model server is already running, please use multi-model-server --stop to stop MMS.")
		case pid > 0:
			return said("TorchServe is already running, please use torchserve --stop to stop TorchServe.")
		case pid < 0:
			fmt.Fprintln(stdout, "Removing orphan pid file.")
			_ = os.Remove(file)
		}
		if !c.flags["--foreground"] {
			return c.detach(file)
		}
	}
	setTunables() // before the file has this process
	if ready == "" {
		if err := os.WriteFile(file, []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
			return err
		}
	}
	defer func() {
		if running(file) == os.Getpid() {
			_ = os.Remove(file)
		}
	}()
	f, err := modelServerFlags(cfg)
	if err != nil {
		return err
	}
	f.python = c.values["--python"]
	if ready != "" {
		_ = os.Unsetenv(childVariable)
		f.serving = func() { tellParent(ready) }
	}
	return serve(f, stdout, stderr)
}

// modelServerFlags returns the flags of a server that has only this dialect.
func modelServerFlags(cfg *modelServerConfig) (*serveFlags, error) {
	f := &serveFlags{}
	f.add(&cobra.Command{}, shoalDefaults)
	f.http.allow, f.grpc.allow, f.metrics.allow = false, false, false
	f.modelServer = cfg
	f.exitOnError = false
	f.batching = cfg.batching
	if f.batching != "" {
		var err error
		if f.policy, err = model.ParseBatching(f.batching); err != nil {
			return nil, fmt.Errorf("--batching %w", err)
		}
	}
	return f, f.metrics.check()
}

// tellParent tells the process that started this one that it serves.
func tellParent(descriptor string) {
	if n, err := strconv.Atoi(descriptor); err == nil {
		f := os.NewFile(uintptr(n), "ready")
		_, _ = f.Write([]byte{1}) // it may be gone
		_ = f.Close()
	}
}

// detach starts the server as another process and returns when it serves.
func (c *modelServerCommand) detach(file string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	cmd := exec.Command(self)
	cmd.Args = append([]string{c.name}, os.Args[1:]...)
	cmd.Env = append(os.Environ(), childVariable+"=3")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{w}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	w.Close()
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, []byte(strconv.Itoa(cmd.Process.Pid)), 0o644); err != nil {
		return err
	}
	var one [1]byte
	if n, _ := r.Read(one[:]); n == 1 {
		return cmd.Process.Release()
	}
	_ = cmd.Wait() // it has said why
	_ = os.Remove(file)
	return errSaid
}

// stopTime is how long stop waits: the server finishes what is in flight.
const stopTime = 90 * time.Second

// stop ends the server that start has started.
func (c *modelServerCommand) stop(stdout io.Writer) int {
	mms := c.dialect == modelstore.MMS
	say := func(ofMMS, ofTS string) {
		if mms {
			ofTS = ofMMS
		}
		fmt.Fprintln(stdout, ofTS)
	}
	file := c.pidFile()
	pid := running(file)
	switch {
	case pid == 0:
		say("Model server is not currently running.", "TorchServe is not currently running.")
		return exitDone
	case pid < 0:
		_ = os.Remove(file)
		say("Model server already stopped.", "TorchServe is not currently running.")
		return exitDone
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		fmt.Fprintf(stdout, "The server, process %d, cannot be stopped: %v\n", pid, err)
		return exitFailed
	}
	deadline := time.Now().Add(stopTime)
	for syscall.Kill(pid, 0) != syscall.ESRCH {
		if time.Now().After(deadline) {
			fmt.Fprintf(stdout, "The server, process %d, has not ended after %v.\n", pid, stopTime)
			return exitFailed
		}
		time.Sleep(20 * time.Millisecond)
	}
	_ = os.Remove(file)
	say("Model server stopped.", "TorchServe has stopped.")
	return exitDone
}

func (c *modelServerCommand) usage() string {
	values, flags := c.options()
	text := "usage: " + c.name + " [-h]"
	for _, f := range flags {
		if f != "--help" {
			text += " [" + f + "]"
		}
	}
	for _, v := range values {
		text += " [" + v + " " + strings.ToUpper(strings.ReplaceAll(strings.TrimPrefix(v, "--"), "-", "_")) + "]"
	}
	return text + "\n"
}

func (c *modelServerCommand) help() string {
	return c.usage() + `
Serves model archives (.mar) over the REST API of this server's name.

options:
  --start               start the server (the default)
  --stop                stop it: requests in flight are finished
  --foreground          stay in the foreground
  --mms-config, --ts-config FILE
                        configuration; config.properties in the working folder by default
  --model-store DIR     folder with the archives
  --models [NAME=]ARCHIVE ...
                        archives to load at the start, "all" for the whole store
  --log-config FILE     accepted for compatibility
  --batching POLICY     auto forms batches without settings; the default follows batch_size and max_batch_delay
  --python PATH         Python interpreter of the handlers
  --ncs                 torchserve: neither write nor read snapshots of what is registered
  --disable-token-auth  torchserve: serve without keys
  --enable-model-api    torchserve: clients may register and unregister models
`
}
