package ort

// minAPI is the version of the C API that we ask a library for. It is the
// lowest that has every function below, so that the most libraries can be used:
// 15 brought the string buffers with explicit lengths, without which a NUL
// would end a string. A library supports every API up to its own minor version,
// so 1.15 and all later ones work.
const minAPI = 15

// The functions of the C API that we use, by their index in its table. The
// table only grows at its end, so an index never changes.
const (
	fnGetErrorCode                        = 1
	fnGetErrorMessage                     = 2
	fnCreateEnv                           = 3
	fnDisableTelemetryEvents              = 6
	fnCreateSession                       = 7
	fnRun                                 = 9
	fnCreateSessionOptions                = 10
	fnSetSessionExecutionMode             = 13
	fnEnableMemPattern                    = 16
	fnDisableMemPattern                   = 17
	fnEnableCPUMemArena                   = 18
	fnDisableCPUMemArena                  = 19
	fnSetGraphOptimizationLevel           = 23
	fnSetIntraOpNumThreads                = 24
	fnSetInterOpNumThreads                = 25
	fnGetInputCount                       = 30
	fnGetOutputCount                      = 31
	fnGetOverridableInitializerCount      = 32
	fnGetInputTypeInfo                    = 33
	fnGetOutputTypeInfo                   = 34
	fnGetOverridableInitializerInfo       = 35
	fnGetInputName                        = 36
	fnGetOutputName                       = 37
	fnGetOverridableInitializerName       = 38
	fnCreateRunOptions                    = 39
	fnCreateTensor                        = 48
	fnCreateTensorWithData                = 49
	fnGetTensorMutableData                = 51
	fnGetStringTensorDataLength           = 53
	fnGetStringTensorContent              = 54
	fnCastTypeInfoToTensorInfo            = 55
	fnGetOnnxTypeFromTypeInfo             = 56
	fnGetTensorElementType                = 60
	fnGetDimensionsCount                  = 61
	fnGetDimensions                       = 62
	fnGetTensorTypeAndShape               = 65
	fnCreateMemoryInfo                    = 68
	fnCreateCPUMemoryInfo                 = 69
	fnAllocatorFree                       = 76
	fnGetAllocatorWithDefaultOptions      = 78
	fnReleaseStatus                       = 93
	fnReleaseMemoryInfo                   = 94
	fnReleaseSession                      = 95
	fnReleaseValue                        = 96
	fnReleaseRunOptions                   = 97
	fnReleaseTypeInfo                     = 98
	fnReleaseTensorTypeAndShapeInfo       = 99
	fnReleaseSessionOptions               = 100
	fnCreateEnvWithGlobalThreadPools      = 119
	fnDisablePerSessionThreads            = 120
	fnCreateThreadingOptions              = 121
	fnReleaseThreadingOptions             = 122
	fnGetAvailableProviders               = 125
	fnReleaseAvailableProviders           = 126
	fnAddSessionConfigEntry               = 130
	fnSetGlobalIntraOpNumThreads          = 147
	fnSetGlobalInterOpNumThreads          = 148
	fnSetGlobalSpinControl                = 149
	fnAddRunConfigEntry                   = 165
	fnAppendProviderTensorRT              = 170
	fnCreateTensorRTOptions               = 171
	fnUpdateTensorRTOptions               = 172
	fnReleaseTensorRTOptions              = 174
	fnAppendProviderCUDA                  = 204
	fnCreateCUDAOptions                   = 205
	fnUpdateCUDAOptions                   = 206
	fnReleaseCUDAOptions                  = 208
	fnAppendProvider                      = 216
	fnMemoryInfoGetDeviceType             = 225
	fnRegisterCustomOpsLibrary            = 228
	fnGetResizedStringTensorElementBuffer = 252

	tableSize = fnGetResizedStringTensorElementBuffer + 1

	// Those of newerAPI and later; a library that is older does not have them.
	fnCreateAllocator         = 131
	fnReleaseAllocator        = 132
	fnGetKeyValue             = 297
	fnReleaseKeyValuePairs    = 300
	fnAllocatorGetStats       = 319
	fnGetMemoryInfoForInputs  = 380
	fnGetMemoryInfoForOutputs = 381

	newerAPI  = 23
	newerSize = fnGetMemoryInfoForOutputs + 1
)

// Values of the C API's enumerations.
const (
	logFatal = 4 // the library's own log: only what ends the process

	deviceHost      = 0
	allocatorDevice = 0
	allocatorArena  = 1
	memoryDefault   = 0
	onnxTypeTensor  = 1
	graphDisableAll = 0
	graphBasic      = 1
	graphExtended   = 2
	graphAll        = 99
)
