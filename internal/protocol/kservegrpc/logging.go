package kservegrpc

import (
	"context"
	"errors"
	"maps"
	"slices"

	"shoal/internal/logset"
	pb "shoal/internal/protocol/kservegrpc/inferencepb"
	"shoal/internal/status"
)

var errLog = status.Errorf(status.Unsupported, "log settings cannot be changed by clients of this server; set them on its command line")

// LogSettings shows the settings of the log, after it has changed those that are
// given.
func (s *service) LogSettings(_ context.Context, req *pb.LogSettingsRequest) (*pb.LogSettingsResponse, error) {
	control := s.server.engine.LogSettings()
	if control == nil {
		return nil, errLog
	}
	change, err := logChange(req.GetSettings())
	if err != nil {
		return nil, err
	}
	now, err := control.Update(change)
	if bad, ok := errors.AsType[logset.BadFormat](err); ok {
		return nil, status.Errorf(status.InvalidArgument, "%s", bad.Error())
	}
	if err != nil {
		return nil, err
	}
	type value = pb.LogSettingsResponse_SettingValue
	text := func(s string) *value {
		return &value{ParameterChoice: &pb.LogSettingsResponse_SettingValue_StringParam{StringParam: s}}
	}
	truth := func(b bool) *value {
		return &value{ParameterChoice: &pb.LogSettingsResponse_SettingValue_BoolParam{BoolParam: b}}
	}
	return &pb.LogSettingsResponse{Settings: map[string]*value{
		"log_file": text(now.File), "log_info": truth(now.Info), "log_warning": truth(now.Warning), "log_error": truth(now.Error),
		"log_verbose_level": {ParameterChoice: &pb.LogSettingsResponse_SettingValue_Uint32Param{Uint32Param: now.Verbose}},
		"log_format":        text(now.Format),
	}}, nil
}

// logChange reads the settings that a client gives. Those that it does not know are
// passed over, as in Triton.
func logChange(given map[string]*pb.LogSettingsRequest_SettingValue) (c logset.Change, err error) {
	for _, name := range slices.Sorted(maps.Keys(given)) {
		text, isText := given[name].GetParameterChoice().(*pb.LogSettingsRequest_SettingValue_StringParam)
		truth, isTruth := given[name].GetParameterChoice().(*pb.LogSettingsRequest_SettingValue_BoolParam)
		number, isNumber := given[name].GetParameterChoice().(*pb.LogSettingsRequest_SettingValue_Uint32Param)
		ok, want := true, ""
		switch name {
		case "log_info", "log_warning", "log_error":
			if ok, want = isTruth, "boolean"; ok {
				*map[string]**bool{"log_info": &c.Info, "log_warning": &c.Warning, "log_error": &c.Error}[name] = &truth.BoolParam
			}
		case "log_verbose_level":
			if ok, want = isNumber, "int32"; ok {
				c.Verbose = &number.Uint32Param
			}
		case "log_format", "log_file":
			if ok, want = isText, "string"; ok {
				*map[string]**string{"log_format": &c.Format, "log_file": &c.File}[name] = &text.StringParam
			}
		}
		if !ok {
			return c, status.Errorf(status.InvalidArgument, "expect %s for '%s'", want, name)
		}
	}
	return c, nil
}
